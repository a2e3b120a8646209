// FP8 against the toolkit's own conversions on the host (cuda_fp8.h): every float near a boundary
// of a code, and one in 97 of all; saturating and not, both formats, and every code back.
#include <cuda_fp8.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "cenote/codec.h"

static cen_addr address(const void *ptr) {
    return (cen_addr)(uintptr_t)ptr;
}

static std::vector<float> floats_to_try() {
    std::vector<float> all;
    auto add = [&](uint32_t bits) {
        float value;
        std::memcpy(&value, &bits, sizeof value);
        all.push_back(value);
    };
    for (uint64_t bits = 0; bits >> 32 == 0; bits += 97 * 64) {
        add((uint32_t)bits);
    }
    for (uint32_t top = 0; top < 1u << 13; top++) { // sign, exponent and the first four bits
        for (int near = -2; near <= 2; near++) {
            add((top << 19) + (uint32_t)near);
        }
    }
    return all;
}

static int compare(const std::vector<float> &all, cen_codec_format format, bool saturate) {
    cen_codec codec = {};
    codec.format = format;
    codec.overflow = saturate ? CEN_CODEC_SATURATE : CEN_CODEC_NONFINITE;
    std::vector<uint8_t> codes(all.size());
    cen_codec_parts parts = {};
    parts.values = address(codes.data());
    parts.bytes.values = codes.size();
    cen_matrix source = {address(all.data()), 1, all.size(), all.size(), CEN_FP32};
    if (cen_codec_encode(&codec, &source, &parts, nullptr, nullptr)) {
        return 1;
    }
    __nv_fp8_interpretation_t kind = format == CEN_CODEC_FP8_E4M3 ? __NV_E4M3 : __NV_E5M2;
    for (size_t i = 0; i < all.size(); i++) {
        uint8_t want = __nv_cvt_float_to_fp8(all[i], saturate ? __NV_SATFINITE : __NV_NOSAT, kind);
        if (codes[i] != want) {
            std::printf("%s%s: %a is 0x%02x, and 0x%02x by cuda_fp8.h\n",
                        cen_codec_format_name(format), saturate ? ", saturating" : "", all[i],
                        codes[i], want);
            return 1;
        }
    }
    return 0;
}

int main() {
    std::vector<float> all = floats_to_try();
    int failed = 0;
    for (cen_codec_format format : {CEN_CODEC_FP8_E4M3, CEN_CODEC_FP8_E5M2}) {
        failed += compare(all, format, true) + compare(all, format, false);
    }
    std::printf("%zu floats compared, %d of 4 kinds differ\n", all.size(), failed);
    return failed != 0;
}
