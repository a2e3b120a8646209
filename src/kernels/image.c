/* The compiled kernels, whose file the build makes of src/kernels/NAME.cu (cmake/kernels.cmake);
 * none when it had no nvcc. The assembler takes the file in: as an array's elements, megabytes
 * would take the compiler longer than all else. */
#include "kernels/table.h"

#ifdef CENI_KERNELS_FILE
__asm__(".section .rodata\n"
        ".balign 64\n"
        ".globl ceni_kernels_bytes\n"
        ".hidden ceni_kernels_bytes\n"
        "ceni_kernels_bytes:\n"
        ".incbin \"" CENI_KERNELS_FILE "\"\n"
        ".previous\n");
extern const unsigned char ceni_kernels_bytes[] __attribute__((visibility("hidden")));
const unsigned char *const ceni_kernels_image = ceni_kernels_bytes;
#else
const unsigned char *const ceni_kernels_image = NULL;
#endif
