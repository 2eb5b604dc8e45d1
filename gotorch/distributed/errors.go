package distributed

import "gotorch.dev/gotorch"

// Kinds of errors, for errors.Is. The other functions of this package that fail, fail with gotorch's kinds.
//
// See https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.DistBackendError
const (
	// NetworkError is of a connection that broke or could not be made: the peer may have died.
	NetworkError gotorch.ErrorKind = "DistNetworkError"
	// TimeoutError is of a time limit that passed while others did not come.
	TimeoutError gotorch.ErrorKind = "DistTimeoutError"
	// StoreError is of a store: a key did not come in time, or its server is gone.
	StoreError gotorch.ErrorKind = "DistStoreError"
	// BackendError is of a backend, such as NCCL.
	BackendError gotorch.ErrorKind = "DistBackendError"
	// UnevenInputsError is of a [Join] that ends where ranks have different numbers of batches. It is Python's RuntimeError.
	UnevenInputsError gotorch.ErrorKind = "UnevenInputsError"
)
