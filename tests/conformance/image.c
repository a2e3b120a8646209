/* What stands in for the compiled kernels where the library has none, so that launches go through
 * the CUDA backend: the test driver takes any image, a GPU's refuses it, and then tests of kernels
 * are skipped. In a program it takes the place of the library's own (src/kernels/image.c). */
#include "kernels/table.h"

static const unsigned char image[] = "no image";
const unsigned char *const ceni_kernels_image = image;
const size_t ceni_kernels_image_size = sizeof image;
