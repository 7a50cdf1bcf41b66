# C types for key_scan.py (Cython's augmenting file): the logic stands there, only types stand here.
import cython

from ottla cimport native
from ottla.records cimport scan
from ottla.records.lz4_frames cimport Lz4Frames
from ottla.records.scan cimport Cursor, cursor_over
from ottla.storage.cleaner.offset_map cimport OffsetMap

cdef int _WHOLE
cdef int _UNUSUAL
cdef int _DAMAGED
cdef int _FULL
cdef int _PARTIAL
cdef int _CODEC
cdef int _LZ4
cdef int MIN_RECORD_BYTES
cdef int _GROWTH
cdef int _RECORD_GROWTH
cdef unsigned long long _MASK
cdef long long _UINT32
cdef int _UNUSUAL_FLAGS
cdef int _HORIZON
cdef int _APPEND_TIME
cdef int _HEADER
cdef int _OVERHEAD
cdef int _LENGTH_AT
cdef int _MAGIC_AT
cdef int _CRC_AT
cdef int _ATTRIBUTES_AT
cdef int _DELTA_AT
cdef int _BASE_TIME_AT
cdef int _MAX_TIME_AT
cdef int _COUNT_AT


@cython.final
cdef class KeyScan:
    cdef public OffsetMap offset_map
    cdef public object out
    cdef public Lz4Frames frames
    cdef Cursor _plain_cursor
    cdef public object marks
    cdef public object places
    cdef public object specials
    cdef unsigned char *_out
    cdef unsigned char *_marks
    cdef long long[::1] _places
    cdef const long long[::1] _specials
    cdef long long _now_ms
    cdef public long long horizon_ms
    cdef public Py_ssize_t position
    cdef public Py_ssize_t filled
    cdef public Py_ssize_t place_count
    cdef Py_ssize_t special_count
    cdef public long long read_count
    cdef public long long kept_count
    cdef public long long kept
    cdef public long long largest
    cdef long long start_offset
    cdef long long upper_offset
    cdef public bint is_rewritten
    cdef bint wants_horizon
    cdef Py_ssize_t _record_end
    cdef Py_ssize_t key_start
    cdef long long key_size
    cdef long long value_size
    cdef long long delta
    cdef long long time_delta

    @cython.locals(cursor=Cursor, state="void *", reason=cython.int)
    cpdef int index_batches(
        self, object view, Py_ssize_t position, Py_ssize_t end, long long start_offset
    ) except -1

    @cython.locals(cursor=Cursor, state="void *", reason=cython.int)
    cpdef int index_records(
        self, object view, long long count, long long base_offset, long long start_offset
    ) except -1

    @cython.locals(
        start=cython.Py_ssize_t, size=cython.Py_ssize_t, end=cython.Py_ssize_t,
        reason=cython.int, base_offset=cython.longlong, count=cython.longlong,
        last=cython.longlong, where=cython.int,
    )
    cdef int index_walk(self, Cursor cursor) noexcept nogil

    @cython.locals(offset=cython.longlong, _=cython.longlong)
    cdef int index(self, Cursor cursor, long long count, long long base_offset) noexcept nogil

    @cython.locals(size=cython.longlong)
    cdef Py_ssize_t batch_size(
        self, Cursor cursor, Py_ssize_t start, Py_ssize_t end
    ) noexcept nogil

    @cython.locals(attributes=cython.int, codec=cython.int)
    cdef bint is_unusual(self, Cursor cursor, Py_ssize_t start) noexcept nogil

    @cython.locals(filled=cython.Py_ssize_t)
    cdef int prepare(self, Cursor cursor, Py_ssize_t start, Py_ssize_t size) noexcept nogil

    @cython.locals(stored=cython.uint)
    cdef bint is_intact(self, Cursor cursor, Py_ssize_t start, Py_ssize_t size) noexcept nogil

    @cython.locals(size=cython.longlong)
    cdef bint step(self, Cursor cursor) noexcept nogil

    @cython.locals(cursor=Cursor, state="void *", reason=cython.int)
    cpdef int filter_batches(
        self, object view, Py_ssize_t position, Py_ssize_t end
    ) except -1

    @cython.locals(
        cursor=Cursor, state="void *", is_whole=cython.bint, growth=cython.Py_ssize_t,
    )
    cpdef bint filter_records(
        self, object view, long long count, long long base_offset, long long base_timestamp,
        bint has_horizon, bint keeps_all
    ) except -1

    @cython.locals(
        start=cython.Py_ssize_t, size=cython.Py_ssize_t, end=cython.Py_ssize_t,
        base_offset=cython.longlong, last_offset=cython.longlong, attributes=cython.int,
        base_timestamp=cython.longlong, count=cython.longlong, has_horizon=cython.bint,
        where=cython.int, is_whole=cython.bint,
    )
    cdef int filter_walk(self, Cursor cursor) noexcept nogil

    @cython.locals(state="void *", growth=cython.Py_ssize_t)
    cpdef copy_plain(self, long long count, long long base_timestamp)

    @cython.locals(low=cython.Py_ssize_t, high=cython.Py_ssize_t, middle=cython.Py_ssize_t)
    cdef bint is_special(self, long long last_offset) noexcept nogil

    @cython.locals(
        keeps_tombstones=cython.bint, fits=cython.bint, has_tombstone=cython.bint,
        index=cython.Py_ssize_t, is_kept=cython.bint, timestamp=cython.longlong,
    )
    cdef bint mark(
        self, Cursor cursor, long long count, long long base_offset, long long base_timestamp,
        bint has_horizon, bint keeps_all
    ) noexcept nogil

    cdef bint is_retained(
        self, Cursor cursor, long long offset, bint keeps_tombstones
    ) noexcept nogil

    @cython.locals(
        begin=cython.Py_ssize_t, size=cython.Py_ssize_t, attributes=cython.int,
        largest=cython.longlong, checksum=cython.uint, last_offset=cython.longlong,
    )
    cdef void write_rest(
        self, Cursor cursor, Py_ssize_t start, long long count, long long base_timestamp
    ) noexcept nogil

    @cython.locals(place=cython.Py_ssize_t)
    cdef void add_place(
        self, long long last_offset, long long timestamp, long long size
    ) noexcept nogil

    @cython.locals(
        index=cython.Py_ssize_t, start=cython.Py_ssize_t, size=cython.longlong,
        record_end=cython.Py_ssize_t, attributes_at=cython.Py_ssize_t, delta=cython.longlong,
        rest=cython.Py_ssize_t,
    )
    cdef void copy_marked(
        self, Cursor cursor, long long count, long long base_timestamp
    ) noexcept nogil

    @cython.locals(rest=cython.ulonglong)
    cdef void put_varint(self, long long value) noexcept nogil
