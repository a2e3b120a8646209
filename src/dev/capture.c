#include "dev/capture.h"

#include "base/log.h"

cen_status ceni_capture_begin(cen_device *device, cen_stream stream) {
    if (!device->backend->capture_begin) {
        return ceni_fail(CEN_ERR_UNSUPPORTED, "capture_begin: not on %s:%d", device->backend->name,
                         device->ordinal);
    }
    return device->backend->capture_begin(device, stream);
}

cen_status ceni_capture_end(cen_device *device, cen_stream stream, ceni_graph **graph) {
    return device->backend->capture_end(device, stream, graph);
}

cen_status ceni_graph_launch(cen_device *device, ceni_graph *graph, cen_stream stream) {
    return device->backend->graph_launch(device, graph, stream);
}

void ceni_graph_destroy(cen_device *device, ceni_graph *graph) {
    if (graph) {
        device->backend->graph_destroy(device, graph);
    }
}
