# C types for flat.py (Cython's augmenting file): the logic stands there, only types stand here.
import cython

from ottla cimport native

from ottla.protocol.walker cimport Reader, Writer, reader_at

cdef int _LONGEST_TEXT
cdef int _TEXT_SHIFT
cdef long long _MAX_ELEMENTS
cdef int _UUID_BYTES
cdef Py_ssize_t _SMALL


cpdef Reader reader_over(object source, Py_ssize_t position)

@cython.locals(count=cython.longlong)
cpdef Py_ssize_t read_count(Reader reader, bint flexible) except -1

@cython.locals(length=cython.longlong, start=cython.Py_ssize_t)
cpdef object read_nullable_text(Reader reader, bint flexible)

cpdef object read_text(Reader reader, bint flexible)

cpdef object read_uuid(Reader reader)

@cython.locals(count=cython.longlong)
cpdef int skip_tags(Reader reader) except -1

@cython.locals(data=bytes)
cpdef bytes encode_text(str text, bint flexible)

cpdef bytes encode_count(Py_ssize_t count, bint flexible)

@cython.locals(data=bytes)
cpdef int write_text(Writer writer, str text, bint flexible) except -1

cpdef int write_nullable_text(Writer writer, str text, bint flexible) except -1

cpdef int write_count(Writer writer, Py_ssize_t count, bint flexible) except -1
