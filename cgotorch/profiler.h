/* profiler.h: what PyTorch's functions take, call by call: times, shapes, memory, and who called.
 * Included by cgotorch.h, inside its extern "C".
 *
 * A profile records calls on all threads of the process from its start to its stop. Several may be
 * there at a time, and each records everything. What is still running when a profile stops is in it
 * as it was then: recording never waits for a call, and a call never writes to a profile that is
 * over. */
#ifndef CGOTORCH_PROFILER_H
#define CGOTORCH_PROFILER_H

typedef struct {
  bool shapes; /* sizes and dtypes of inputs */
  bool memory; /* allocations */
  bool flops;  /* by Kineto's formulas */
  bool device; /* what an NVIDIA GPU does, recorded by Kineto; one profile at a time */

  int64_t max_events; /* calls, and as many allocations, beyond which the rest is only counted */
  int64_t goroutine;  /* the only one that is recorded; 0 for all, and for threads that say none */
} ProfileOptions;

/* One call of a function, of a node of a backward pass, or one range. */
typedef struct {
  int64_t start, end;     /* nanoseconds since 1970; end is -1 while it runs */
  int64_t parent;         /* the event around it on its thread, an index; or -1 */
  int64_t name, overload; /* where in names */
  int64_t scope;          /* at::RecordScope's number: 0 function, 1 backward, 7 range, ... */
  int64_t thread, end_thread, forward_thread; /* libtorch's numbers; 0 is none */
  int64_t system_thread;                      /* the operating system's number */
  int64_t sequence; /* of the graph's node that it is, or that it may make; or -1 */
  int64_t inputs;   /* where in ints, or -1: see below */
  int64_t flops;
  int64_t memory;                /* bytes allocated less bytes freed, outside of events within */
  int64_t goroutine, call, site; /* those of cgotorch_profile_enter; 0 where there are none */
} ProfileEvent;

/* Memory of the computer that was allocated, or freed where bytes is negative. */
typedef struct {
  int64_t time, address, bytes;
  int64_t total; /* bytes of what was allocated while there was a profile, and lives */
  int64_t parent, thread, system_thread, goroutine;
} ProfileMemory;

/* What Kineto says of a device: a kernel, a copy, or the call of the driver that started one. */
typedef struct {
  int64_t start, end, name;
  int64_t device_type, device_index,
      resource; /* device_type 0 is the computer; resource a stream */
  int64_t correlation, linked;
} ProfileActivity;

/* Inputs are a count, and that many of
 *     0                        nothing, an undefined tensor, or what has no sizes
 *     1, dtype, n, n sizes     a tensor; dtype is where in names
 *     2, total, n, n inputs    a list of tensors, of which the first n are there, 64 at most
 *     3                        a number
 *     4                        a list of numbers
 */
typedef struct {
  int64_t start, stop; /* nanoseconds since 1970 */
  int64_t clock;       /* cgotorch_profile_clock at the start */
  ProfileEvent *events;
  int64_t events_len;
  ProfileMemory *memory;
  int64_t memory_len;
  ProfileActivity *activities;
  int64_t activities_len;
  int64_t *ints;
  int64_t ints_len;
  char *names; /* NUL-terminated, one behind the other; "" is at 0 */
  int64_t names_len;
  int64_t dropped_events, dropped_memory;
} ProfileData;

/* RuntimeError where 16 profiles are being recorded, and with device where one does already or
 * there is no GPU. */
CGOTORCH_API const char *StartProfile(const ProfileOptions *options, int64_t *profile)
    CGOTORCH_SYMBOL(StartProfile);
/* Ends a profile, on any thread, and returns what was recorded, for FreeProfile; with a NULL data,
 * forgets it. ValueError where there is no such profile. */
CGOTORCH_API const char *StopProfile(int64_t profile, ProfileData **data)
    CGOTORCH_SYMBOL(StopProfile);
CGOTORCH_API void FreeProfile(ProfileData *data) CGOTORCH_SYMBOL(FreeProfile);

/* A range of the calling thread's, around all that the thread calls before LeaveRange, which must
 * be on the same thread, the inner one first. NULL where nobody records. */
typedef struct cgotorch_range *ProfileRange;
CGOTORCH_API const char *EnterRange(const char *name, ProfileRange *range)
    CGOTORCH_SYMBOL(EnterRange);
CGOTORCH_API void LeaveRange(ProfileRange range) CGOTORCH_SYMBOL(LeaveRange);

/* Who calls: kept for a thread, and written into its events. cgotorch_profile_enter returns what
 * was there before, for cgotorch_profile_leave. A goroutine that is there stays: Go code that C
 * calls runs in another one, for the sake of the first. */
struct cgotorch_profile_place {
  int64_t goroutine, call, site;
};
CGOTORCH_API struct cgotorch_profile_place cgotorch_profile_enter(
    struct cgotorch_profile_place place);
CGOTORCH_API void cgotorch_profile_leave(struct cgotorch_profile_place before);
/* The steady clock that durations are measured by, in nanoseconds. */
CGOTORCH_API int64_t cgotorch_profile_clock(void);

#endif
