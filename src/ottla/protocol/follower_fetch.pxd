# C types for follower_fetch.py (Cython's augmenting file): the logic stands there, only types here.
import cython

from ottla cimport native
from ottla.protocol.fetch_values cimport FetchedPartition
from ottla.protocol.flat cimport read_count, read_uuid, skip_tags, write_text
from ottla.protocol.walker cimport Reader, Writer, reader_at, writer_into

cdef int _FETCH
cdef int _REPLICA_STATE_TAG
cdef int _REPLICA_STATE_BYTES
cdef int _DIVERGING_TAG
cdef int _LEADER_TAG


@cython.locals(out=list, writer=Writer)
cpdef bytes write_fetch_request(
    object request, int correlation_id, str client_id, int version
)

@cython.locals(topics=list, keys=list)
cdef int _write_partitions(Writer writer, dict partitions) except -1

@cython.locals(topics=list, keys=list)
cdef int _write_forgotten(Writer writer, list forgotten) except -1

@cython.locals(topics=dict)
cdef list _group(list keys)

cpdef object read_fetch_response(object frame, int version)

@cython.locals(
    reader=Reader, found=list, topic_count=cython.Py_ssize_t, count=cython.Py_ssize_t,
)
cdef object _read(object frame)

@cython.locals(
    aborted=cython.Py_ssize_t, size=cython.Py_ssize_t, position=cython.Py_ssize_t,
    tags=cython.Py_ssize_t, tag=cython.Py_ssize_t, tag_bytes=cython.Py_ssize_t,
)
cdef FetchedPartition _read_partition(Reader reader, object topic_id)
