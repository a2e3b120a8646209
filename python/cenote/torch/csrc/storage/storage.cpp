/* Moves a storage to other memory, for cenote.torch's queues: what torch has for that is for C++. */
#include <c10/core/StorageImpl.h>

extern "C" {

/* Points the storage (UntypedStorage._cdata) at `ptr`, memory of its device that holds what it held;
 * all tensors of it follow. The memory that it had is freed as it would be with the storage. Whoever
 * calls keeps `ptr` there for as long as the storage lives. */
void cenote_torch_storage_move(c10::StorageImpl *storage, void *ptr) {
    storage->set_data_ptr_noswap(c10::DataPtr(ptr, storage->device()));
}
}
