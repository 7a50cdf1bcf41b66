# C types for offset_map.py (Cython's augmenting file), which contains the logic.
import cython

from ottla.records.scan cimport Cursor, cursor_over

cdef unsigned long long _MASK
cdef unsigned long long _SIP_0
cdef unsigned long long _SIP_1
cdef unsigned long long _SIP_2
cdef unsigned long long _SIP_3


@cython.final
cdef class OffsetMap:
    cdef unsigned long long[::1] _words
    cdef unsigned long long _seed_low
    cdef unsigned long long _seed_high
    cdef unsigned long long low
    cdef unsigned long long high
    cdef public long long entries
    cdef public long long limit
    cdef public long long slots
    cdef public long long latest_offset

    @cython.locals(
        v0=cython.ulonglong, v1=cython.ulonglong, v2=cython.ulonglong, v3=cython.ulonglong,
        word=cython.ulonglong, byte=cython.ulonglong, length=cython.ulonglong,
        position=cython.Py_ssize_t, end=cython.Py_ssize_t, shift=cython.int, number=cython.int,
        _=cython.Py_ssize_t,
    )
    cdef void hash(self, Cursor cursor, Py_ssize_t start, Py_ssize_t size) noexcept nogil

    @cython.locals(slots=cython.ulonglong, slot=cython.ulonglong, place=cython.ulonglong)
    cdef unsigned long long place_of(
        self, Cursor cursor, Py_ssize_t start, Py_ssize_t size
    ) noexcept nogil

    @cython.locals(place=cython.ulonglong, offset=cython.longlong)
    cdef long long get(self, Cursor cursor, Py_ssize_t start, Py_ssize_t size) noexcept nogil

    @cython.locals(place=cython.ulonglong)
    cdef bint put(
        self, Cursor cursor, Py_ssize_t start, Py_ssize_t size, long long offset
    ) noexcept nogil
