# C types for sampled_stat.py (Cython's augmenting file): the logic is in the .py file, only types are here.
import cython


@cython.final
cdef class Sample:
    cdef public long long count
    cdef public double total
    cdef public double highest
    cdef public double lowest
    cdef public long long start_ms
    cdef public long long last_ms

    cpdef reset(self, long long now_ms)


cdef class SampledStat:
    cdef public long long count
    cdef public double total
    cdef object _window
    cdef public list _samples
    cdef Py_ssize_t _current
    cdef Sample _sample
    cdef long long _sample_ms

    @cython.locals(sample=Sample)
    cpdef record(self, double value, long long now_ms)

    cpdef Sample _next_sample(self, long long now_ms)
