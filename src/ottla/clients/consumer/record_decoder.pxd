# C types for record_decoder.py (Cython's augmenting file): the logic is in the .py file, only types are here.
import cython

from ottla.clients.consumer cimport gc_tracking
from ottla.records.scan cimport Cursor, cursor_over, overflows

cdef long long _LARGEST_BASE


@cython.locals(
    raw="const unsigned char *", end=cython.Py_ssize_t, cursor=Cursor, records=list,
    size=cython.longlong, record_end=cython.Py_ssize_t, timestamp_delta=cython.longlong,
    offset_delta=cython.longlong, timestamp=cython.longlong, key_size=cython.longlong,
    key_start=cython.Py_ssize_t, value_size=cython.longlong, value_start=cython.Py_ssize_t,
    header_count=cython.longlong, kind=type, fields=tuple, append_time=cython.longlong,
    is_log_append_time=cython.bint,
)
cpdef object simple_records(
    bytes plain, long long count, long long base_offset, long long base_timestamp,
    object log_append_time, object topic, object partition,
)
