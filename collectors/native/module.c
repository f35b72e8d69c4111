/* gpuprof.collectors.native._native: what Python is too slow for, with the GIL released. */

#include <Python.h>
#include <string.h>

#include "intervals.h"
#include "trace_events.h"

/* The bytes of one column; NULL with an exception set. A column without any value is None. */
static PyObject *column_object(const Events *events, int table, int place)
{
    const Rows *rows = &events->tables[table];
    size_t width = (size_t)table_width(table);
    bool coded = table_column(table, place).content != INTEGERS;
    int64_t none = coded ? 0 : NO_VALUE;
    const int64_t *cell = rows->cells + place;
    size_t first = 0;
    while (first < rows->rows && cell[first * width] == none)
        first++;
    if (first == rows->rows)
        Py_RETURN_NONE;
    size_t size = rows->rows * (coded ? sizeof(uint32_t) : sizeof(int64_t));
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (!bytes)
        return NULL;
    char *to = PyBytes_AsString(bytes);
    for (size_t row = 0; row < rows->rows; row++) {
        int64_t value = cell[row * width];
        if (coded) {
            uint32_t code = (uint32_t)value;
            memcpy(to + row * sizeof(code), &code, sizeof(code));
        } else {
            memcpy(to + row * sizeof(value), &value, sizeof(value));
        }
    }
    return bytes;
}

static const char *content_name(int content)
{
    return content == INTEGERS ? "integers" : content == NAMES ? "names" : "texts";
}

/* A list of (name, content, bytes). */
static PyObject *table_object(const Events *events, int table)
{
    PyObject *columns = PyList_New(0);
    for (int place = 0; columns && place < table_width(table); place++) {
        PyObject *values = column_object(events, table, place);
        if (values == Py_None) {
            Py_DECREF(values);
            continue;
        }
        Column column = table_column(table, place);
        PyObject *item = values ? Py_BuildValue("(ssO)", column.name, content_name(column.content),
                                                values)
                                : NULL;
        Py_XDECREF(values);
        if (!item || PyList_Append(columns, item) < 0)
            Py_CLEAR(columns);
        Py_XDECREF(item);
    }
    return columns;
}

static PyObject *tables_object(const Events *events)
{
    PyObject *tables = PyDict_New();
    for (int table = 0; tables && table < TABLES; table++) {
        if (!events->tables[table].rows)
            continue;
        PyObject *columns = table_object(events, table);
        if (!columns || PyDict_SetItemString(tables, table_name(table), columns) < 0)
            Py_CLEAR(tables);
        Py_XDECREF(columns);
    }
    return tables;
}

static PyObject *spans_object(const Spans *spans)
{
    PyObject *list = PyList_New((Py_ssize_t)spans->count);
    for (size_t i = 0; list && i < spans->count; i++) {
        Span span = spans->items[i];
        PyObject *bytes = PyBytes_FromStringAndSize(span.at, (Py_ssize_t)span.length);
        if (!bytes || PyList_SetItem(list, (Py_ssize_t)i, bytes) < 0)
            Py_CLEAR(list);
    }
    return list;
}

PyDoc_STRVAR(read_events_doc,
             "read_events(buffer, length, /)\n--\n\n"
             "The events that are the first `length` bytes of `buffer`, bytes or a bytearray, in "
             "columns: elements of a JSON array with commas between them. None where they are not "
             "of a plain kind.");

/* The text of bytes or a bytearray: both end with a zero byte, which `read_events` needs. */
static bool view_text(PyObject *object, Py_buffer *view)
{
    if (!PyBytes_Check(object) && !PyByteArray_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "bytes or a bytearray are needed");
        return false;
    }
    /* As long as it is looked at nobody can resize it. */
    return PyObject_GetBuffer(object, view, PyBUF_SIMPLE) == 0;
}

static PyObject *read_events_of(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *object;
    Py_ssize_t length;
    Py_buffer view;
    if (!PyArg_ParseTuple(arguments, "On:read_events", &object, &length) ||
        !view_text(object, &view))
        return NULL;
    if (length < 0 || length > view.len) {
        PyErr_SetString(PyExc_ValueError, "the buffer is not as long");
        PyBuffer_Release(&view);
        return NULL;
    }
    Events events;
    Outcome outcome;
    PyObject *result = NULL;
    Py_BEGIN_ALLOW_THREADS
    outcome = read_events(view.buf, (size_t)length, &events);
    Py_END_ALLOW_THREADS
    if (outcome == NO_MEMORY) {
        PyErr_NoMemory();
    } else if (outcome == NOT_READ) {
        result = Py_NewRef(Py_None);
    } else {
        PyObject *names = spans_object(&events.names.items);
        PyObject *texts = spans_object(&events.texts.items);
        PyObject *tables = tables_object(&events);
        PyObject *others = spans_object(&events.others);
        if (names && texts && tables && others)
            result = Py_BuildValue("(OOOO)", names, texts, tables, others);
        Py_XDECREF(names);
        Py_XDECREF(texts);
        Py_XDECREF(tables);
        Py_XDECREF(others);
    }
    free_events(&events);
    PyBuffer_Release(&view);
    return result;
}

/* Arrays of int64: the first `intervals` of one length, those behind them of another. */
#define MOST_ARRAYS 6

typedef struct {
    Py_buffer views[MOST_ARRAYS];
    int count;
} Arrays;

static void release(Arrays *arrays)
{
    while (arrays->count)
        PyBuffer_Release(&arrays->views[--arrays->count]);
}

static bool take(PyObject *arguments, int intervals, int points, Arrays *arrays)
{
    int count = intervals + points;
    arrays->count = 0;
    if (PyTuple_Size(arguments) != count) {
        PyErr_Format(PyExc_TypeError, "%d arrays are needed", count);
        return false;
    }
    for (int i = 0; i < count; i++) {
        Py_buffer *view = &arrays->views[i];
        if (PyObject_GetBuffer(PyTuple_GetItem(arguments, i), view, PyBUF_C_CONTIGUOUS) < 0) {
            release(arrays);
            return false;
        }
        arrays->count++;
        Py_ssize_t expected = arrays->views[i < intervals ? 0 : intervals].len;
        if (view->itemsize != sizeof(int64_t) || view->len != expected) {
            PyErr_SetString(PyExc_ValueError, "the arrays must be of int64 and equally long");
            release(arrays);
            return false;
        }
    }
    return true;
}

static const int64_t *array(const Arrays *arrays, int place)
{
    return arrays->views[place].buf;
}

static size_t length(const Arrays *arrays, int place)
{
    return (size_t)arrays->views[place].len / sizeof(int64_t);
}

/* What was worked out without the lock; NULL with an exception set where there was no memory. */
static PyObject *finished(PyObject *result, bool done, Arrays *arrays)
{
    if (!done) {
        Py_CLEAR(result);
        PyErr_NoMemory();
    }
    release(arrays);
    return result;
}

/* `result`; None where what it was found from was not in order. */
static PyObject *in_order(PyObject *result, bool ordered)
{
    if (!result || ordered)
        return result;
    Py_DECREF(result);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(parents_doc, "parents(threads, starts, ends, /)\n--\n\n"
                          "gpuprof.collectors.call_tree.nesting.parents as bytes of int64.");

static PyObject *parents_of(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Arrays arrays;
    if (!take(arguments, 3, 0, &arrays))
        return NULL;
    PyObject *result = PyByteArray_FromStringAndSize(NULL, arrays.views[0].len);
    bool done = false;
    if (result) {
        int64_t *to = (int64_t *)PyByteArray_AsString(result);
        Py_BEGIN_ALLOW_THREADS
        done = parents(array(&arrays, 0), array(&arrays, 1), array(&arrays, 2), length(&arrays, 0),
                       to);
        Py_END_ALLOW_THREADS
    }
    return finished(result, done, &arrays);
}

PyDoc_STRVAR(free_rows_doc, "free_rows(starts, ends, /)\n--\n\n"
                            "gpuprof.roofline.timeline.rows.free_rows as bytes of int64.");

static PyObject *free_rows_of(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Arrays arrays;
    if (!take(arguments, 2, 0, &arrays))
        return NULL;
    PyObject *result = PyByteArray_FromStringAndSize(NULL, arrays.views[0].len);
    bool done = false;
    if (result) {
        int64_t *to = (int64_t *)PyByteArray_AsString(result);
        Py_BEGIN_ALLOW_THREADS
        done = free_rows(array(&arrays, 0), array(&arrays, 1), length(&arrays, 0), to);
        Py_END_ALLOW_THREADS
    }
    return finished(result, done, &arrays);
}

PyDoc_STRVAR(innermost_doc,
             "innermost(threads, starts, ends, parent, at_threads, at_times, /)\n--\n\n"
             "gpuprof.collectors.call_tree.nesting.innermost as bytes of int64; None where a parent "
             "does not stand before its row.");

static PyObject *innermost_of(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Arrays arrays;
    if (!take(arguments, 4, 2, &arrays))
        return NULL;
    PyObject *result = PyByteArray_FromStringAndSize(NULL, arrays.views[4].len);
    bool ordered = false, done = false;
    if (result) {
        Intervals intervals = {array(&arrays, 0), array(&arrays, 1), array(&arrays, 2),
                               array(&arrays, 3), length(&arrays, 0)};
        int64_t *to = (int64_t *)PyByteArray_AsString(result);
        Py_BEGIN_ALLOW_THREADS
        ordered = are_above(intervals.parent, intervals.count);
        done = !ordered || innermost(&intervals, array(&arrays, 4), array(&arrays, 5),
                                     length(&arrays, 4), to);
        Py_END_ALLOW_THREADS
    }
    return in_order(finished(result, done, &arrays), ordered);
}

PyDoc_STRVAR(inherit_doc,
             "inherit(codes, parent, /)\n--\n\n"
             "gpuprof.collectors.call_tree.inheriting.inherit as bytes of int64; None where a "
             "parent does not stand before its row.");

static PyObject *inherit_of(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Arrays arrays;
    if (!take(arguments, 2, 0, &arrays))
        return NULL;
    PyObject *result = PyByteArray_FromStringAndSize(NULL, arrays.views[0].len);
    bool ordered = false;
    if (result) {
        int64_t *to = (int64_t *)PyByteArray_AsString(result);
        Py_BEGIN_ALLOW_THREADS
        ordered = are_above(array(&arrays, 1), length(&arrays, 1));
        if (ordered)
            inherit(array(&arrays, 0), array(&arrays, 1), length(&arrays, 0), to);
        Py_END_ALLOW_THREADS
    }
    return in_order(finished(result, true, &arrays), ordered);
}

PyDoc_STRVAR(call_times_doc,
             "call_times(names, threads, starts, ends, order, count, /)\n--\n\n"
             "gpuprof.roofline.host.call_times.call_times as bytes of int64, one array after the "
             "other, of names from 0 to `count`.");

static PyObject *call_times_of(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Arrays arrays;
    PyObject *given = PyTuple_GetSlice(arguments, 0, 5);
    if (!given)
        return NULL;
    bool taken = take(given, 4, 1, &arrays);
    Py_DECREF(given);
    if (!taken)
        return NULL;
    PyObject *number = PyTuple_GetItem(arguments, 5);
    size_t names = number ? PyLong_AsSize_t(number) : 0;
    if (PyErr_Occurred())
        return finished(NULL, true, &arrays);
    Calls calls = {array(&arrays, 0),  array(&arrays, 1), array(&arrays, 2), array(&arrays, 3),
                   length(&arrays, 0), array(&arrays, 4), length(&arrays, 4)};
    if (names > PY_SSIZE_T_MAX / (4 * sizeof(int64_t)) || !are_within(&calls, names)) {
        PyErr_SetString(PyExc_ValueError, "numbers of calls and names must be in their arrays");
        return finished(NULL, true, &arrays);
    }
    PyObject *result = PyByteArray_FromStringAndSize(NULL, 4 * names * sizeof(int64_t));
    bool done = false;
    if (result) {
        int64_t *to = (int64_t *)PyByteArray_AsString(result);
        CallTimes times = {to, to + names, to + 2 * names, to + 3 * names, names};
        Py_BEGIN_ALLOW_THREADS
        done = call_times(&calls, &times);
        Py_END_ALLOW_THREADS
    }
    return finished(result, done, &arrays);
}

static PyMethodDef METHODS[] = {
    {"read_events", read_events_of, METH_VARARGS, read_events_doc},
    {"parents", parents_of, METH_VARARGS, parents_doc},
    {"innermost", innermost_of, METH_VARARGS, innermost_doc},
    {"inherit", inherit_of, METH_VARARGS, inherit_doc},
    {"free_rows", free_rows_of, METH_VARARGS, free_rows_doc},
    {"call_times", call_times_of, METH_VARARGS, call_times_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT,
    .m_name = "gpuprof.collectors.native._native",
    .m_size = 0,
    .m_methods = METHODS,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&MODULE);
}
