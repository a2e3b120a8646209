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

/* A hook whose call brings something in. `holder` is read after the call. */
#define BRINGS(symbol, arguments, kind, holder)                                                    \
    PL_BEGIN(symbol, arguments)                                                                    \
    pl_measure measure = pl_measure_begin(-1, false);                                              \
    pl_result result = real->symbol arguments;                                                     \
    pl_ptr whose = result == PL_SUCCESS ? (holder) : NULL;                                         \
    return pl_leave(request.before, brought(&measure, result, kind, whose));

#define ENDS(symbol, arguments, kind, holder)                                                      \
    PL_BEGIN(symbol, arguments)                                                                    \
    pl_result result = real->symbol arguments;                                                     \
    if (result == PL_SUCCESS) {                                                                    \
        (void)pl_end(kind, (uintptr_t)(holder), NULL);                                             \
    }                                                                                              \
    return pl_leave(request.before, result);

pl_result cuModuleLoad(pl_ptr *module, const char *file){
    BRINGS(cuModuleLoad, (module, file), CEN_LEDGER_MODULE, *module)}

pl_result cuModuleLoadData(pl_ptr *module, const void *image){
    BRINGS(cuModuleLoadData, (module, image), CEN_LEDGER_MODULE, *module)}

pl_result cuModuleLoadDataEx(pl_ptr *module, const void *image, unsigned count, pl_enum *options,
                             void **values){
    BRINGS(cuModuleLoadDataEx, (module, image, count, options, values), CEN_LEDGER_MODULE, *module)}

pl_result cuModuleLoadFatBinary(pl_ptr *module, const void *image){
    BRINGS(cuModuleLoadFatBinary, (module, image), CEN_LEDGER_MODULE, *module)}

pl_result cuModuleUnload(pl_ptr module){ENDS(cuModuleUnload, (module), CEN_LEDGER_MODULE, module)}

pl_result cuModuleGetFunction(pl_ptr *function, pl_ptr module, const char *name){
    BRINGS(cuModuleGetFunction, (function, module, name), CEN_LEDGER_MODULE, module)}

pl_result cuModuleGetGlobal(pl_addr_v1 *addr, unsigned *size, pl_ptr module, const char *name){
    BRINGS(cuModuleGetGlobal, (addr, size, module, name), CEN_LEDGER_MODULE, module)}

pl_result cuModuleGetGlobal_v2(pl_addr *addr, size_t *size, pl_ptr module, const char *name){
    BRINGS(cuModuleGetGlobal_v2, (addr, size, module, name), CEN_LEDGER_MODULE, module)}

pl_result cuLibraryLoadData(pl_ptr *library, const void *code, pl_enum *jit, void **jit_values,
                            unsigned jit_count, pl_enum *options, void **values, unsigned count){
    BRINGS(cuLibraryLoadData, (library, code, jit, jit_values, jit_count, options, values, count),
           CEN_LEDGER_MODULE, *library)}

pl_result
    cuLibraryLoadFromFile(pl_ptr *library, const char *file, pl_enum *jit, void **jit_values,
                          unsigned jit_count, pl_enum *options, void **values, unsigned count){
        BRINGS(cuLibraryLoadFromFile,
               (library, file, jit, jit_values, jit_count, options, values, count),
               CEN_LEDGER_MODULE, *library)}

pl_result
    cuLibraryUnload(pl_ptr library){ENDS(cuLibraryUnload, (library), CEN_LEDGER_MODULE, library)}

pl_result cuLibraryGetKernel(pl_ptr *kernel, pl_ptr library, const char *name){
    BRINGS(cuLibraryGetKernel, (kernel, library, name), CEN_LEDGER_MODULE, library)}

pl_result cuLibraryGetModule(pl_ptr *module, pl_ptr library){
    BRINGS(cuLibraryGetModule, (module, library), CEN_LEDGER_MODULE, library)}

pl_result cuLibraryGetGlobal(pl_addr *addr, size_t *size, pl_ptr library, const char *name) {
    BRINGS(cuLibraryGetGlobal, (addr, size, library, name), CEN_LEDGER_MODULE, library)
}

static pl_ptr library_of(pl_ptr kernel) {
    pl_ptr library = NULL;
    return pl_real()->cuKernelGetLibrary(&library, kernel) == PL_SUCCESS ? library : kernel;
}

static pl_ptr module_of(pl_ptr function) {
    pl_ptr module = NULL;
    return pl_real()->cuFuncGetModule(&module, function) == PL_SUCCESS ? module : function;
}

pl_result cuKernelGetFunction(pl_ptr *function, pl_ptr kernel){
    BRINGS(cuKernelGetFunction, (function, kernel), CEN_LEDGER_MODULE, library_of(kernel))}

pl_result cuFuncLoad(pl_ptr function){
    BRINGS(cuFuncLoad, (function), CEN_LEDGER_MODULE, module_of(function))}

/* ---- graphs ---- */

pl_result cuGraphInstantiate(pl_ptr *exec, pl_ptr graph, pl_ptr *node, char *log, size_t size){
    BRINGS(cuGraphInstantiate, (exec, graph, node, log, size), CEN_LEDGER_GRAPH, *exec)}

pl_result cuGraphInstantiate_v2(pl_ptr *exec, pl_ptr graph, pl_ptr *node, char *log, size_t size){
    BRINGS(cuGraphInstantiate_v2, (exec, graph, node, log, size), CEN_LEDGER_GRAPH, *exec)}

pl_result cuGraphInstantiateWithFlags(pl_ptr *exec, pl_ptr graph, pl_flags flags){
    BRINGS(cuGraphInstantiateWithFlags, (exec, graph, flags), CEN_LEDGER_GRAPH, *exec)}

pl_result cuGraphInstantiateWithParams(pl_ptr *exec, pl_ptr graph, void *params){
    BRINGS(cuGraphInstantiateWithParams, (exec, graph, params), CEN_LEDGER_GRAPH, *exec)}

pl_result cuGraphInstantiateWithParams_ptsz(pl_ptr *exec, pl_ptr graph, void *params){
    BRINGS(cuGraphInstantiateWithParams_ptsz, (exec, graph, params), CEN_LEDGER_GRAPH, *exec)}

pl_result cuGraphUpload(pl_ptr exec, pl_ptr stream){
    BRINGS(cuGraphUpload, (exec, stream), CEN_LEDGER_GRAPH, exec)}

pl_result cuGraphUpload_ptsz(pl_ptr exec, pl_ptr stream){
    BRINGS(cuGraphUpload_ptsz, (exec, stream), CEN_LEDGER_GRAPH, exec)}

pl_result cuGraphExecDestroy(pl_ptr exec) {
    ENDS(cuGraphExecDestroy, (exec), CEN_LEDGER_GRAPH, exec)
}
