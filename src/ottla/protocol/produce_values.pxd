# C types for produce_values.py (Cython's augmenting file): the logic stands there, only types here.
import cython

from ottla.protocol.flat cimport (
    encode_count, encode_text, read_count, read_nullable_text, read_text, read_uuid, skip_tags,
)
from ottla.protocol.walker cimport Reader


cpdef object read_produce(Reader reader, int version)

@cython.locals(
    flexible=cython.bint, topic_count=cython.Py_ssize_t, count=cython.Py_ssize_t,
    size=cython.longlong, start=cython.Py_ssize_t, partitions=list,
)
cdef object _read(Reader reader, int version)

@cython.locals(
    flexible=cython.bint, parts=list, topic_count=cython.Py_ssize_t, number=cython.Py_ssize_t,
    end=cython.Py_ssize_t, count=cython.Py_ssize_t, size=cython.Py_ssize_t,
)
cpdef bytes write_produce(list answers, object correlation_id, int version, object throttle_time_ms)

@cython.locals(flexible=cython.bint, has_no_errors=cython.bint)
cdef object _write_partition(list parts, tuple answer, int version)

cdef bytes _nullable_text(object text, bint flexible)
