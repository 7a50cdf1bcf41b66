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
    cdef public list _samples
    cdef Py_ssize_t _current
    cdef Sample _sample
    cdef long long _sample_count
    cdef long long _sample_ms

    @cython.locals(sample=Sample)
    cpdef record(self, double value, long long now_ms)

    cpdef Sample _next_sample(self, long long now_ms)

    @cython.locals(sample=Sample, total=cython.double)
    cpdef double rate(self, long long now_ms) except? -1

    @cython.locals(
        sample=Sample, oldest_ms=cython.longlong, elapsed_ms=cython.longlong,
        missing=cython.longlong,
    )
    cpdef long long window_ms(self, long long now_ms) except? -1

    @cython.locals(sample=Sample, kept_ms=cython.longlong)
    cdef int _forget_old(self, long long now_ms) except -1
