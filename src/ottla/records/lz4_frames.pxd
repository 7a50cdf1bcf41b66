# C types for lz4_frames.py (Cython's augmenting file), which contains the logic.
import cython

from ottla cimport native
from ottla.records.scan cimport Cursor

cdef unsigned int _MAGIC


@cython.final
cdef class Lz4Frames:
    cdef public object plain
    cdef unsigned char *_plain
    cdef Py_ssize_t _size

    @cython.locals(
        flags=cython.int, position=cython.Py_ssize_t, filled=cython.Py_ssize_t,
        lowest=cython.Py_ssize_t, size=cython.longlong, is_uncompressed=cython.bint,
    )
    cdef Py_ssize_t unpack(self, Cursor cursor, Py_ssize_t start, Py_ssize_t end) noexcept nogil

    @cython.locals(word=cython.uint, byte=cython.uint, index=cython.int)
    cdef unsigned int word_at(self, Cursor cursor, Py_ssize_t position) noexcept nogil

    @cython.locals(
        position=cython.Py_ssize_t, token=cython.int, size=cython.longlong, byte=cython.int,
        distance=cython.Py_ssize_t, _=cython.longlong,
    )
    cdef Py_ssize_t unpack_block(
        self, Cursor cursor, Py_ssize_t start, Py_ssize_t end, Py_ssize_t filled,
        Py_ssize_t lowest
    ) noexcept nogil
