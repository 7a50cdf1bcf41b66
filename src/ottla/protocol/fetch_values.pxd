# C types for fetch_values.py (Cython's augmenting file): the logic stands there, only types here.
import cython

from ottla cimport native
from ottla.protocol.flat cimport (
    read_count, read_nullable_text, read_text, read_uuid, skip_tags,
    write_count, write_text,
)
from ottla.protocol.walker cimport Reader, Writer, writer_into


cdef class FetchedPartition:
    cdef readonly object key
    cdef readonly int error_code
    cdef readonly long long high_watermark
    cdef readonly long long last_stable_offset
    cdef readonly long long log_start_offset
    cdef readonly object aborted
    cdef readonly object records
    cdef readonly Py_ssize_t size_bytes
    cdef readonly object diverging
    cdef readonly object leader
    cdef readonly int preferred_replica

cpdef object read_fetch(Reader reader, int version)

@cython.locals(flexible=cython.bint, forgotten=list)
cdef object _read(Reader reader, int version)

@cython.locals(
    flexible=cython.bint, found=dict, topic_count=cython.Py_ssize_t, count=cython.Py_ssize_t,
)
cdef dict _read_partitions(Reader reader, int version)

@cython.locals(flexible=cython.bint, topic_count=cython.Py_ssize_t, count=cython.Py_ssize_t)
cdef int _read_forgotten(Reader reader, int version, list found) except -1

@cython.locals(count=cython.Py_ssize_t, tag=cython.Py_ssize_t, size=cython.Py_ssize_t)
cdef tuple _read_tags(Reader reader, int version, object replica_id)

@cython.locals(
    flexible=cython.bint, items=list, writer=Writer, head=Writer,
    following_bytes=cython.longlong, number=cython.Py_ssize_t, end=cython.Py_ssize_t, tags=bytes,
    first=FetchedPartition,
)
cpdef list write_fetch(object answer, int correlation_id, int version, int throttle_time_ms)

cdef int _write_head(
    Writer writer, int correlation_id, int version, int throttle_time_ms
) except -1

cdef int _write_topic(Writer writer, object key, int version) except -1

@cython.locals(end=cython.Py_ssize_t, first=FetchedPartition, following=FetchedPartition)
cdef Py_ssize_t _end_of_topic(object partitions, Py_ssize_t start) except -1

@cython.locals(count=cython.Py_ssize_t, number=cython.Py_ssize_t)
cdef Py_ssize_t _count_topics(object partitions) except -1

@cython.locals(flexible=cython.bint)
cdef object _write_partition(Writer writer, FetchedPartition fetched, int version)

cdef object _write_partition_tags(Writer writer, FetchedPartition fetched)

cdef bytes _response_tags(object endpoints, int version)
