# C types for scan.py (Cython's augmenting file): the logic stands there, only types stand here.
import cython

from ottla cimport native

cdef long long LARGEST_INT64
cdef long long MIN_INT64
cdef long long _MAX_BASE
cdef unsigned int _UINT32
cdef int OUT_OF_BYTES
cdef int VARINT_TOO_LONG
cdef int TOO_MANY_HEADERS
cdef int MAX_HEADERS
cdef int MALFORMED
cdef int NOT_CONSECUTIVE
cdef int RULE_BROKEN
cdef unsigned int[::1] CRC32C_TABLES


@cython.final
cdef class Cursor:
    cdef object source
    cdef const unsigned char *data
    cdef Py_ssize_t position
    cdef Py_ssize_t end
    cdef int fault
    cdef long long name_bytes
    cdef long long content_bytes
    cdef long long largest
    cdef long long largest_index

    @cython.locals(byte=cython.uint, bits=cython.ulonglong, value=cython.ulonglong, shift=cython.int)
    cdef long long varint(self) noexcept nogil

    @cython.locals(byte=cython.uint, bits=cython.ulonglong, value=cython.ulonglong, shift=cython.int)
    cdef long long varlong(self) noexcept nogil

    @cython.locals(start=cython.Py_ssize_t)
    cdef Py_ssize_t skip(self, long long size) noexcept nogil

    @cython.locals(size=cython.longlong)
    cdef void skip_headers(self, long long count) noexcept nogil

    cdef void skip_bounded_headers(self, long long count) noexcept nogil


@cython.locals(cursor=Cursor)
cpdef Cursor cursor_over(object source, Py_ssize_t position, Py_ssize_t end)


cpdef bint overflows(long long base, long long delta) noexcept nogil


@cython.locals(cursor=Cursor, flags=cython.int)
cpdef tuple scan_records(
    object data, Py_ssize_t position, Py_ssize_t end, long long count,
    long long base_timestamp, long long earliest, long long latest, bint requires_keys,
    long long first_index=*,
)


@cython.locals(
    flags=cython.int, largest=cython.longlong, end=cython.Py_ssize_t,
    index=cython.longlong, size=cython.longlong, record_end=cython.Py_ssize_t,
    timestamp_delta=cython.longlong, timestamp=cython.longlong, key_size=cython.longlong,
)
cpdef int walk_records(
    Cursor cursor, long long count, long long base_timestamp, long long earliest,
    long long latest, bint requires_keys, long long first_index,
) noexcept nogil


@cython.locals(
    cursor=Cursor, index=cython.longlong, size=cython.longlong, record_end=cython.Py_ssize_t,
    stop=cython.Py_ssize_t,
)
cpdef tuple slice_end(
    object data, Py_ssize_t position, long long count, long long max_bytes,
)


@cython.locals(
    cursor=Cursor, found=list, index=cython.longlong, size=cython.longlong,
    record_end=cython.Py_ssize_t, timestamp_delta=cython.longlong, offset_delta=cython.longlong,
    key_size=cython.longlong, value_size=cython.longlong,
)
cpdef list outline_records(
    object data, Py_ssize_t position, Py_ssize_t end, long long first_index,
    long long count,
)


@cython.locals(
    cursor=Cursor, index=cython.longlong, size=cython.longlong, start=cython.Py_ssize_t,
    record_end=cython.Py_ssize_t, times_end=cython.Py_ssize_t, rest=cython.Py_ssize_t,
    delta=cython.longlong,
)
cpdef Py_ssize_t append_renumbered(
    bytearray out, object data, Py_ssize_t position, long long first_index,
    long long count,
) except -1


@cython.locals(
    plain=bytes, raw="const unsigned char *", end=cython.Py_ssize_t, cursor=Cursor, records=list,
    headers=tuple,
    index=cython.longlong, size=cython.longlong, record_end=cython.Py_ssize_t,
    timestamp_delta=cython.longlong, offset_delta=cython.longlong, timestamp=cython.longlong,
    key_size=cython.longlong, key_start=cython.Py_ssize_t, value_size=cython.longlong,
    value_start=cython.Py_ssize_t, header_count=cython.longlong, append_time=cython.longlong,
    has_append_time=cython.bint,
)
cpdef list decode_records(
    object payload, long long count, long long base_offset, long long base_timestamp,
    object log_append_time,
)


@cython.locals(
    headers=list, key_size=cython.longlong, key_start=cython.Py_ssize_t,
    value_size=cython.longlong, value_start=cython.Py_ssize_t, name=str,
)
cdef tuple decode_headers(Cursor cursor, const unsigned char *raw, long long count)


@cython.locals(rest=cython.ulonglong, size=cython.int)
cpdef int varint_bytes(long long value) noexcept nogil


@cython.locals(rest=cython.ulonglong)
cpdef append_varint(bytearray out, long long value)


@cython.locals(out=bytearray, raw=bytes)
cpdef bytes header_bytes(object headers)


@cython.locals(key_size=cython.longlong, value_size=cython.longlong, size=cython.Py_ssize_t)
cpdef Py_ssize_t record_bytes(
    long long timestamp_delta, long long offset_delta, object key, object value, object headers
) except -1


@cython.locals(largest=cython.longlong, index=cython.longlong, timestamp=cython.longlong)
cpdef long long append_records(bytearray out, object records, long long base_timestamp) except? -2


@cython.locals(size=cython.Py_ssize_t)
cpdef bint append_record(
    bytearray out, long long timestamp_delta, long long offset_delta, object key, object value,
    object headers, long long limit=*,
) except -1


cpdef unsigned int crc32c(object data, unsigned int value=*) except? 0


@cython.locals(tables="unsigned int[::1]", crc=cython.uint)
cdef unsigned int checksum_of(
    const unsigned char *data, Py_ssize_t position, Py_ssize_t end, unsigned int value
) noexcept nogil
