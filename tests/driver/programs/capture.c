/* Captures a fill into a graph, allocating meanwhile as frameworks do (in relaxed mode), and
 * launches it. */
#include "cuda_calls.h"

enum { GLOBAL = 0, RELAXED = 2, SIZE = 4 << 20 };

int main(void) {
    handle stream, graph, exec;
    device_address address, later;
    unsigned mode = RELAXED;
    unsigned char byte = 0;
    start();
    DO(cuMemAlloc_v2(&address, SIZE));
    DO(cuStreamCreate(&stream, 1));
    DO(cuStreamBeginCapture_v2(stream, GLOBAL));
    DO(cuMemsetD8Async(address, 42, SIZE, stream));
    DO(cuThreadExchangeStreamCaptureMode(&mode));
    DO(cuMemAlloc_v2(&later, SIZE));
    DO(cuThreadExchangeStreamCaptureMode(&mode));
    DO(cuMemsetD8Async(later, 43, SIZE, stream));
    DO(cuStreamEndCapture(stream, &graph));
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    DO(cuGraphLaunch(exec, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuMemcpyDtoH_v2(&byte, later, 1));
    DO(cuGraphExecDestroy(exec));
    DO(cuGraphDestroy(graph));
    DO(cuMemFree_v2(later));
    DO(cuMemFree_v2(address));
    DO(cuStreamDestroy_v2(stream));
    printf("the graph wrote %d\n", byte);
    return byte == 43 ? 0 : 1;
}
