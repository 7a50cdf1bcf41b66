# C types for column_scan.py (Cython's augmenting file), which contains the logic.
import cython

from ottla.records.scan cimport Cursor, cursor_over, overflows, varint_bytes


@cython.locals(
    cursor=Cursor, end=cython.Py_ssize_t, size=cython.longlong, record_end=cython.Py_ssize_t,
    header_count=cython.longlong, _=cython.longlong,
)
cpdef bint measure_records(
    object data, long long count, long long base_timestamp,
    long long[::1] totals,
) except? -1


@cython.final
cdef class BinarySink:
    cdef unsigned char[::1] validity
    cdef int[::1] offsets
    cdef unsigned char[::1] data
    cdef public long long filled
    cdef public long long rows
    cdef public long long nulls

    @cython.locals(row=cython.longlong, filled=cython.longlong, index=cython.longlong)
    cdef void append(self, Cursor source, Py_ssize_t start, long long size) noexcept nogil


@cython.final
cdef class ColumnSink:
    cdef long long[::1] offsets
    cdef long long[::1] timestamps
    cdef int[::1] timestamp_types
    cdef BinarySink keys
    cdef BinarySink values
    cdef unsigned char[::1] header_validity
    cdef int[::1] header_lists
    cdef BinarySink names
    cdef BinarySink contents
    cdef bint with_keys
    cdef bint with_values
    cdef bint with_headers
    cdef public long long rows

    @cython.locals(
        cursor=Cursor, has_append_time=cython.bint, append_time=cython.longlong, size=cython.longlong,
        record_end=cython.Py_ssize_t, timestamp_delta=cython.longlong,
        offset_delta=cython.longlong, offset=cython.longlong, row=cython.longlong,
        start=cython.Py_ssize_t, _=cython.longlong,
    )
    cpdef fill(
        self, object data, long long count, long long base_offset,
        long long base_timestamp, object log_append_time, long long first_offset,
        long long end_offset,
    )

    @cython.locals(
        count=cython.longlong, size=cython.longlong, start=cython.Py_ssize_t, _=cython.longlong,
    )
    cdef void fill_headers(self, Cursor cursor, long long row) noexcept nogil


@cython.final
cdef class BinarySource:
    cdef const unsigned char[::1] validity
    cdef const long long[::1] wide
    cdef const int[::1] narrow
    cdef const unsigned char[::1] data
    cdef long long first
    cdef bint is_absent
    cdef bint is_wide
    cdef bint with_validity

    cpdef bint holds(self, long long rows) noexcept nogil

    @cython.locals(place=cython.longlong)
    cdef bint is_null(self, long long row) noexcept nogil

    cdef long long start(self, long long row) noexcept nogil

    @cython.locals(start=cython.longlong, size=cython.longlong)
    cdef long long size(self, long long row) noexcept nogil


@cython.final
cdef class RecordSink:
    cdef unsigned char[::1] data
    cdef Py_ssize_t position

    @cython.locals(rest=cython.ulonglong, position=cython.Py_ssize_t)
    cdef void varint(self, long long value) noexcept nogil

    @cython.locals(
        size=cython.longlong, start=cython.longlong, position=cython.Py_ssize_t,
        index=cython.longlong,
    )
    cdef void field(self, BinarySource source, long long row) noexcept nogil


@cython.final
cdef class ColumnSource:
    cdef BinarySource keys
    cdef BinarySource values
    cdef const long long[::1] timestamps
    cdef BinarySource header_presence
    cdef const int[::1] header_lists
    cdef BinarySource names
    cdef BinarySource contents
    cdef bint with_headers

    cdef long long header_count(self, long long row) noexcept nogil

    @cython.locals(
        key_size=cython.longlong, value_size=cython.longlong, count=cython.longlong,
        total=cython.longlong, start=cython.longlong, header=cython.longlong,
    )
    cdef long long record_bytes(
        self, long long row, long long timestamp_delta, long long offset_delta
    ) noexcept nogil


cdef long long field_bytes(long long size) noexcept nogil


@cython.locals(
    sink=RecordSink, capacity=cython.Py_ssize_t, base_timestamp=cython.longlong,
    largest=cython.longlong, rows=cython.longlong, row=cython.longlong,
    timestamp=cython.longlong, size=cython.longlong, header_count=cython.longlong,
    index=cython.longlong,
)
cpdef tuple write_records(
    unsigned char[::1] data, ColumnSource source, long long first_row, long long end_row
)
