# Where compiled: CPython's own call, without a Python function in between.
cdef extern from "Python.h":
    void untrack "PyObject_GC_UnTrack" (object record) noexcept
