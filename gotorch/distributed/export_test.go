package distributed

// AsOnDevices has FullyShard exchange the computer's memory as that of devices while fn runs.
func AsOnDevices(fn func()) {
	asOnDevices.Store(true)
	defer asOnDevices.Store(false)
	fn()
}
