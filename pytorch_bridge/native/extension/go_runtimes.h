// go_runtimes.h: several Go runtimes in one process.
#pragma once

// To be called before and after a Go library is loaded and has started: hands Go's preemption
// signal to every runtime.
//
// A Go runtime interrupts its own threads with SIGURG, and takes every SIGURG for its own: of two
// runtimes the one that was loaded first would never again interrupt a loop that calls nothing, and
// its collector, and whoever waits for that, would wait for the loop. A runtime leaves threads
// alone that are not its own, so each may be asked.
void share_preemption();
