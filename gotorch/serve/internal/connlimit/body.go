package connlimit

import (
	"net/http"
	"time"
)

// refusedWait is how long the rest of a body may take whose request has been refused.
const refusedWait = 100 * time.Millisecond

// LeaveBody is for a handler that answers a request of HTTP/1 without having read its body. net/http reads a part of such a
// body before the answer goes out, for as long as the client may take to send it. After LeaveBody that is no longer than a
// tenth of a second: who has sent the body keeps the connection, and who has not gets the answer and loses it.
func LeaveBody(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 && r.Body != nil && r.Body != http.NoBody {
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusedWait))
	}
}
