/* Modules, libraries and graphs: what they take of the device is measured around the calls that
 * bring it there, which with lazy loading are those that ask for a function. Only a difference that
 * is not 0 makes an entry; it is the module's, whichever call made it. */
#include "preload/preload.h"

static pl_result brought(const pl_measure *measure, pl_result result, cen_ledger_kind kind,
                         pl_ptr holder) {
    int64_t bytes = 0;
    if (result == PL_SUCCESS && pl_measure_end(measure, &bytes) && bytes) {
        pl_add_measured(kind, measure->device, (uintptr_t)holder, bytes);
    } else if (result == PL_OUT_OF_MEMORY) {
        pl_failed(measure->device, 0, 0);
    }
    return result;
}

/* Defines a hook whose call brings something in. `holder` is read after the call. */
#define BRINGS(symbol, parameters, arguments, kind, holder)                                        \
    pl_result symbol parameters {                                                                  \
        PL_BEGIN(symbol, arguments)                                                                \
        pl_measure measure = pl_measure_begin(-1, false);                                          \
        pl_result result = real->symbol arguments;                                                 \
        pl_ptr whose = result == PL_SUCCESS ? (holder) : NULL;                                     \
        return pl_leave(request.before, brought(&measure, result, kind, whose));                   \
    }

/* Defines one whose call ends it. */
#define ENDS(symbol, parameters, arguments, kind, holder)                                          \
    pl_result symbol parameters {                                                                  \
        PL_BEGIN(symbol, arguments)                                                                \
        pl_result result = real->symbol arguments;                                                 \
        if (result == PL_SUCCESS) {                                                                \
            (void)pl_end(kind, (uintptr_t)(holder), NULL);                                         \
        }                                                                                          \
        return pl_leave(request.before, result);                                                   \
    }

BRINGS(cuModuleLoad, (pl_ptr * module, const char *file), (module, file), CEN_LEDGER_MODULE,
       *module)

BRINGS(cuModuleLoadData, (pl_ptr * module, const void *image), (module, image), CEN_LEDGER_MODULE,
       *module)

BRINGS(cuModuleLoadDataEx,
       (pl_ptr * module, const void *image, unsigned count, pl_enum *options, void **values),
       (module, image, count, options, values), CEN_LEDGER_MODULE, *module)

BRINGS(cuModuleLoadFatBinary, (pl_ptr * module, const void *image), (module, image),
       CEN_LEDGER_MODULE, *module)

ENDS(cuModuleUnload, (pl_ptr module), (module), CEN_LEDGER_MODULE, module)

BRINGS(cuModuleGetFunction, (pl_ptr * function, pl_ptr module, const char *name),
       (function, module, name), CEN_LEDGER_MODULE, module)

BRINGS(cuModuleGetGlobal, (pl_addr_v1 * addr, unsigned *size, pl_ptr module, const char *name),
       (addr, size, module, name), CEN_LEDGER_MODULE, module)

BRINGS(cuModuleGetGlobal_v2, (pl_addr * addr, size_t *size, pl_ptr module, const char *name),
       (addr, size, module, name), CEN_LEDGER_MODULE, module)

BRINGS(cuLibraryLoadData,
       (pl_ptr * library, const void *code, pl_enum *jit, void **jit_values, unsigned jit_count,
        pl_enum *options, void **values, unsigned count),
       (library, code, jit, jit_values, jit_count, options, values, count), CEN_LEDGER_MODULE,
       *library)

BRINGS(cuLibraryLoadFromFile,
       (pl_ptr * library, const char *file, pl_enum *jit, void **jit_values, unsigned jit_count,
        pl_enum *options, void **values, unsigned count),
       (library, file, jit, jit_values, jit_count, options, values, count), CEN_LEDGER_MODULE,
       *library)

ENDS(cuLibraryUnload, (pl_ptr library), (library), CEN_LEDGER_MODULE, library)

BRINGS(cuLibraryGetKernel, (pl_ptr * kernel, pl_ptr library, const char *name),
       (kernel, library, name), CEN_LEDGER_MODULE, library)

BRINGS(cuLibraryGetModule, (pl_ptr * module, pl_ptr library), (module, library), CEN_LEDGER_MODULE,
       library)

BRINGS(cuLibraryGetGlobal, (pl_addr * addr, size_t *size, pl_ptr library, const char *name),
       (addr, size, library, name), CEN_LEDGER_MODULE, library)

static pl_ptr library_of(pl_ptr kernel) {
    pl_ptr library = NULL;
    return pl_real()->cuKernelGetLibrary(&library, kernel) == PL_SUCCESS ? library : kernel;
}

static pl_ptr module_of(pl_ptr function) {
    pl_ptr module = NULL;
    return pl_real()->cuFuncGetModule(&module, function) == PL_SUCCESS ? module : function;
}

BRINGS(cuKernelGetFunction, (pl_ptr * function, pl_ptr kernel), (function, kernel),
       CEN_LEDGER_MODULE, library_of(kernel))

BRINGS(cuFuncLoad, (pl_ptr function), (function), CEN_LEDGER_MODULE, module_of(function))

/* ---- graphs ---- */

BRINGS(cuGraphInstantiate, (pl_ptr * exec, pl_ptr graph, pl_ptr *node, char *log, size_t size),
       (exec, graph, node, log, size), CEN_LEDGER_GRAPH, *exec)

BRINGS(cuGraphInstantiate_v2, (pl_ptr * exec, pl_ptr graph, pl_ptr *node, char *log, size_t size),
       (exec, graph, node, log, size), CEN_LEDGER_GRAPH, *exec)

BRINGS(cuGraphInstantiateWithFlags, (pl_ptr * exec, pl_ptr graph, pl_flags flags),
       (exec, graph, flags), CEN_LEDGER_GRAPH, *exec)

BRINGS(cuGraphInstantiateWithParams, (pl_ptr * exec, pl_ptr graph, void *params),
       (exec, graph, params), CEN_LEDGER_GRAPH, *exec)

BRINGS(cuGraphInstantiateWithParams_ptsz, (pl_ptr * exec, pl_ptr graph, void *params),
       (exec, graph, params), CEN_LEDGER_GRAPH, *exec)

BRINGS(cuGraphUpload, (pl_ptr exec, pl_ptr stream), (exec, stream), CEN_LEDGER_GRAPH, exec)

BRINGS(cuGraphUpload_ptsz, (pl_ptr exec, pl_ptr stream), (exec, stream), CEN_LEDGER_GRAPH, exec)

ENDS(cuGraphExecDestroy, (pl_ptr exec), (exec), CEN_LEDGER_GRAPH, exec)
