# C types for validator.py (Cython's augmenting file): the logic stands there, only types stand here.
import cython

from ottla cimport native
from ottla.records.scan cimport Cursor, cursor_over, walk_records

cdef long long _MIN_INT64
cdef long long _MAX_INT64
cdef long long _UINT32
cdef long long _INT31
cdef int _MAGIC
cdef int _MAGIC_AT
cdef int _OVERHEAD
cdef int _LENGTH_AT
cdef int _CRC_AT
cdef int _ATTRIBUTES_AT
cdef int _DELTA_AT
cdef int _BASE_TIME_AT
cdef int _MAX_TIME_AT
cdef int _PRODUCER_AT
cdef int _EPOCH_AT
cdef int _SEQUENCE_AT
cdef int _COUNT_AT
cdef int _HEADER_SIZE
cdef int _CODEC
cdef int _APPEND_TIME
cdef int _TRANSACTIONAL
cdef int _CONTROL
cdef int _KNOWN_FLAGS
cdef int _LOOP_SIZE
cdef int _LEADER_EPOCH_AT
cdef object _CLIENT


@cython.locals(data="const unsigned char *", is_whole=cython.bint)
cpdef bint is_single_batch(object records) except -1

cdef bint _is_whole(const unsigned char *data, Py_ssize_t size) noexcept nogil

@cython.locals(
    data="unsigned char *", cursor=Cursor, is_client=cython.bint,
    size=cython.Py_ssize_t, attributes=cython.int, delta=cython.longlong,
    base_time=cython.longlong, count=cython.longlong, codec=cython.int,
    is_log_append_time=cython.bint, earliest=cython.longlong, latest=cython.longlong,
    faults=cython.int, largest=cython.longlong, last=cython.longlong, checksum=cython.longlong,
    max_bytes=cython.longlong, before_max_ms=cython.longlong, after_max_ms=cython.longlong,
    requires_keys=cython.bint, target=cython.int, append_time=cython.longlong,
)
cpdef object validate(
    object view, long long next_offset, int leader_epoch, long long now_ms, object rules,
    object origin=*,
)

@cython.locals(
    data="unsigned char *", attributes=cython.int, last=cython.longlong,
    base=cython.longlong, has_append_time=cython.bint, flags=cython.int,
)
cpdef object place(
    object view, long long next_offset, int leader_epoch, long long largest,
    bint is_log_append_time,
)

cdef void _put_place(
    unsigned char *data, long long base_offset, Py_ssize_t size, int leader_epoch
) noexcept nogil

@cython.locals(attributes=cython.int, delta=cython.longlong, sequence=cython.longlong)
cdef object _summary(
    object view, const unsigned char *data, long long last, long long largest,
    long long append_time,
)
