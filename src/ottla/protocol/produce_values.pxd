# C types for produce_values.py (Cython's augmenting file): the logic stands there, only types here.
import cython

from ottla cimport native
from ottla.protocol.flat cimport (
    read_count, read_nullable_text, read_text, read_uuid, skip_tags, write_count,
    write_nullable_text, write_text,
)
from ottla.protocol.walker cimport Reader, Writer, writer_into


cpdef object read_produce(Reader reader, int version)

@cython.locals(
    flexible=cython.bint, topic_count=cython.Py_ssize_t, count=cython.Py_ssize_t,
    size=cython.longlong, start=cython.Py_ssize_t, partitions=list,
)
cdef object _read(Reader reader, int version)

@cython.locals(
    flexible=cython.bint, writer=Writer, number=cython.Py_ssize_t, end=cython.Py_ssize_t,
    tags=bytes,
)
cpdef bytes write_produce(
    list answers, int correlation_id, int version, int throttle_time_ms
)

@cython.locals(answer=tuple, found=dict)
cdef bytes _response_tags(list answers, int version)

@cython.locals(end=cython.Py_ssize_t)
cdef Py_ssize_t _end_of_topic(list answers, Py_ssize_t start) except -1

@cython.locals(count=cython.Py_ssize_t, number=cython.Py_ssize_t)
cdef Py_ssize_t _count_topics(list answers) except -1

@cython.locals(flexible=cython.bint)
cdef int _write_partition(Writer writer, tuple answer, int version) except -1
