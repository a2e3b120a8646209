#include "codec/tensor_values.h"

cen_status ceni_tensor_source_open(const cen_tensors *file, const cen_tensor *tensor,
                                   ceni_tensor_source *source) {
    *source = (ceni_tensor_source){
        .file = file, .tensor = tensor, .dtype = tensor->dtype, .count = tensor->count};
    return CEN_OK;
}

cen_status ceni_tensor_source_read(ceni_tensor_source *source, uint64_t first, size_t count,
                                   double *to) {
    return cen_tensors_values(source->file, source->tensor, first, count, to);
}

void ceni_tensor_source_close(ceni_tensor_source *source) {
    *source = (ceni_tensor_source){0};
}
