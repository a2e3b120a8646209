/* The compiled kernels, as bytes that the build makes of src/kernels/NAME.cu (cmake/kernels.cmake);
 * none when it had no nvcc. */
#include "kernels/table.h"

#ifdef CENI_KERNELS_BYTES
static _Alignas(64) const unsigned char image[] = {
#include CENI_KERNELS_BYTES
};
const unsigned char *const ceni_kernels_image = image;
const size_t ceni_kernels_image_size = sizeof image;
#else
const unsigned char *const ceni_kernels_image = NULL;
const size_t ceni_kernels_image_size = 0;
#endif
