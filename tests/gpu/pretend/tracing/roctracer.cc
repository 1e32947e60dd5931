// The two functions of libroctracer64.so.4 that CuPy asks for: there is nothing to trace.
#define TRACER_API extern "C" __attribute__((visibility("default")))

TRACER_API void roctracer_start() {}
TRACER_API void roctracer_stop() {}
