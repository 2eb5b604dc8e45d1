/* device.h: devices that compute beside the processor: GPUs, and whatever else libtorch has a
 * backend for. Included by cgotorch.h, inside its extern "C".
 *
 * Everything here goes through what libtorch asks of every backend, so it is the same for CUDA and
 * for others, and nothing of CUDA is linked. Naming a CUDA device loads libtorch_cuda.so. A backend
 * that lacks something says so with a RuntimeError or NotImplementedError. */
#ifndef CGOTORCH_DEVICE_H
#define CGOTORCH_DEVICE_H

/* Devices ------------------------------------------------------------------------------------ */

/* The type of the accelerator that this process has, c10::DeviceType's number; -1 for none. A
 * process has one at most. Looks for CUDA, and loads it where it is not loaded. */
CGOTORCH_API const char *GetAccelerator(int32_t *device_type) CGOTORCH_SYMBOL(GetAccelerator);
/* What libtorch calls a type, as "cuda". A backend of another project, "privateuseone", is called
 * by the name that its library gave it. Free with FreeString. */
CGOTORCH_API const char *GetDeviceTypeName(int32_t device_type, const char **name)
    CGOTORCH_SYMBOL(GetDeviceTypeName);
/* How many devices of a type there are: 0 where libtorch has no backend for it, 1 CPU. */
CGOTORCH_API const char *GetDeviceCount(int32_t device_type, int64_t *n)
    CGOTORCH_SYMBOL(GetDeviceCount);
/* The calling thread's current device of a type. */
CGOTORCH_API const char *GetCurrentDevice(int32_t device_type, Device *result)
    CGOTORCH_SYMBOL(GetCurrentDevice);
/* Makes device the current one of its type on the calling thread; *previous, where not NULL, is the
 * one before. Index -1 changes nothing. */
CGOTORCH_API const char *SetCurrentDevice(Device device, Device *previous)
    CGOTORCH_SYMBOL(SetCurrentDevice);
/* Waits for all work on a device; index -1 is the current one. Does nothing for the CPU. */
CGOTORCH_API const char *SynchronizeDevice(Device device) CGOTORCH_SYMBOL(SynchronizeDevice);

/* Streams ------------------------------------------------------------------------------------ */

/* A stream is a value and is never freed: libtorch hands its streams out again and again. */

CGOTORCH_API const char *NewStream(Device device, int64_t priority, Stream *result)
    CGOTORCH_SYMBOL(NewStream);
CGOTORCH_API const char *GetDefaultStream(Device device, Stream *result)
    CGOTORCH_SYMBOL(GetDefaultStream);
/* The calling thread's current stream of a device. */
CGOTORCH_API const char *GetCurrentStream(Device device, Stream *result)
    CGOTORCH_SYMBOL(GetCurrentStream);
/* Makes stream the current one of its device on the calling thread. *previous, where not NULL, is
 * the one before. The current device stays. */
CGOTORCH_API const char *SetCurrentStream(Stream stream, Stream *previous)
    CGOTORCH_SYMBOL(SetCurrentStream);
/* Whether all work that was given to stream is done. */
CGOTORCH_API const char *QueryStream(Stream stream, bool *done) CGOTORCH_SYMBOL(QueryStream);
CGOTORCH_API const char *SynchronizeStream(Stream stream) CGOTORCH_SYMBOL(SynchronizeStream);

/* Events ------------------------------------------------------------------------------------- */

typedef struct cgotorch_event *Event;

/* An event for devices of a type; with timing, EventElapsedTime can be asked. */
CGOTORCH_API const char *NewEvent(int32_t device_type, bool timing, Event *result)
    CGOTORCH_SYMBOL(NewEvent);
/* The event happens when stream has done what it has been given until now. An event that was
 * recorded belongs to that stream's device. */
CGOTORCH_API const char *RecordEvent(Event event, Stream stream) CGOTORCH_SYMBOL(RecordEvent);
/* What stream is given from now on waits for the event. */
CGOTORCH_API const char *StreamWaitEvent(Stream stream, Event event)
    CGOTORCH_SYMBOL(StreamWaitEvent);
/* Whether the event has happened; true where it was never recorded. */
CGOTORCH_API const char *QueryEvent(Event event, bool *done) CGOTORCH_SYMBOL(QueryEvent);
CGOTORCH_API const char *SynchronizeEvent(Event event) CGOTORCH_SYMBOL(SynchronizeEvent);
/* Milliseconds between two events, which have happened. */
CGOTORCH_API const char *EventElapsedTime(Event start, Event end, double *milliseconds)
    CGOTORCH_SYMBOL(EventElapsedTime);
CGOTORCH_API void FreeEvent(Event event) CGOTORCH_SYMBOL(FreeEvent);

/* Memory ------------------------------------------------------------------------------------- */

/* A number of bytes over time. */
typedef struct {
  int64_t current;
  int64_t peak;
  int64_t allocated; /* since the start */
  int64_t freed;     /* since the start */
} DeviceBytes;

typedef struct {
  DeviceBytes allocated; /* in use by tensors */
  DeviceBytes reserved;  /* taken from the device, in use or kept to be handed out again */
  DeviceBytes active;    /* in use, or freed and waiting for a stream */
  DeviceBytes requested; /* what tensors asked for, before it was rounded up */
  int64_t blocks;        /* in use */
  int64_t retries;       /* allocations that first gave back what was kept */
  int64_t ooms;          /* allocations that failed */
} DeviceMemory;

/* What the device's caching allocator counts; index -1 is the current device. NotImplementedError
 * where the backend has no such allocator. */
CGOTORCH_API const char *GetDeviceMemory(Device device, DeviceMemory *result)
    CGOTORCH_SYMBOL(GetDeviceMemory);
/* Makes the peaks the current values. */
CGOTORCH_API const char *ResetPeakDeviceMemory(Device device)
    CGOTORCH_SYMBOL(ResetPeakDeviceMemory);
/* Free and total bytes of the device itself. */
CGOTORCH_API const char *GetDeviceMemoryInfo(Device device, int64_t *free, int64_t *total)
    CGOTORCH_SYMBOL(GetDeviceMemoryInfo);
/* Gives back to the devices of a type what their allocator keeps and nobody uses. */
CGOTORCH_API const char *EmptyDeviceCache(int32_t device_type) CGOTORCH_SYMBOL(EmptyDeviceCache);

/* Graphs ------------------------------------------------------------------------------------- */

typedef struct cgotorch_device_graph *DeviceGraph;

/* A graph of the work of devices of a type, CUDA's for instance, which is captured once and
 * replayed. NotImplementedError where the backend, or this torch, has none. */
CGOTORCH_API const char *NewDeviceGraph(int32_t device_type, DeviceGraph *result)
    CGOTORCH_SYMBOL(NewDeviceGraph);
/* From here to EndCapture, which the same thread calls, the work that is given to the current
 * stream is captured and not done. The stream must not be the default one. */
CGOTORCH_API const char *BeginCapture(DeviceGraph graph) CGOTORCH_SYMBOL(BeginCapture);
CGOTORCH_API const char *EndCapture(DeviceGraph graph) CGOTORCH_SYMBOL(EndCapture);
/* Gives the captured work to the current stream. It reads and writes the memory that it did when it
 * was captured. */
CGOTORCH_API const char *ReplayGraph(DeviceGraph graph) CGOTORCH_SYMBOL(ReplayGraph);
/* Frees the captured work; the graph can capture again. */
CGOTORCH_API const char *ResetGraph(DeviceGraph graph) CGOTORCH_SYMBOL(ResetGraph);
CGOTORCH_API void FreeDeviceGraph(DeviceGraph graph) CGOTORCH_SYMBOL(FreeDeviceGraph);

#endif
