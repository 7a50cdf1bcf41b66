# C types for fetch_values.py (Cython's augmenting file): the logic stands there, only types here.
import cython

from ottla.protocol.flat cimport (
    encode_count, encode_text, read_count, read_nullable_text, read_text, read_uuid, skip_tags,
)
from ottla.protocol.walker cimport Reader


cpdef object read_fetch(Reader reader, int version)

@cython.locals(flexible=cython.bint, forgotten=list)
cdef object _read(Reader reader, int version)

@cython.locals(
    flexible=cython.bint, found=list, topic_count=cython.Py_ssize_t, count=cython.Py_ssize_t,
)
cdef list _read_partitions(Reader reader, int version)

@cython.locals(flexible=cython.bint, topic_count=cython.Py_ssize_t, count=cython.Py_ssize_t)
cdef int _read_forgotten(Reader reader, int version, list found) except -1

@cython.locals(count=cython.Py_ssize_t, tag=cython.Py_ssize_t, size=cython.Py_ssize_t)
cdef tuple _read_tags(Reader reader, int version, object replica_id)

@cython.locals(
    flexible=cython.bint, parts=list, items=list, size=cython.longlong, number=cython.Py_ssize_t,
    end=cython.Py_ssize_t,
)
cpdef list write_fetch(object answer, object correlation_id, int version, object throttle_time_ms)

@cython.locals(end=cython.Py_ssize_t)
cdef Py_ssize_t _end_of_topic(object partitions, Py_ssize_t start) except -1

@cython.locals(count=cython.Py_ssize_t, number=cython.Py_ssize_t)
cdef Py_ssize_t _count_topics(object partitions) except -1

cdef object _topic(object key, int version)

@cython.locals(flexible=cython.bint)
cdef int _write_partition(list parts, object fetched, int version) except -1

cdef bytes _partition_tags(object fetched)

cdef bytes _response_tags(object endpoints, int version)
