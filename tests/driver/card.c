/* Memory of a card: a range of addresses with a page of its own behind it, which every device that
 * enabled peer access may use. What other processes hold counts as if it were on the same card. */
#include "base/mem.h"
#include "tests/driver/state.h"
#include "tests/driver/td.h"

uint64_t td_round(uint64_t size, uint64_t unit) {
    return (size + unit - 1) / unit * unit;
}

void td_card_free_bytes(const td_card *card, uint64_t *free_bytes, uint64_t *total) {
    uint64_t others = td_state_others(card->ordinal);
    *free_bytes = *total = 0;
    ceni_backend_host.mem_info(card->device, free_bytes, total);
    *free_bytes -= others < *free_bytes ? others : *free_bytes;
}

void td_publish(const td_card *card) {
    uint64_t free_bytes = 0, total = 0;
    if (!ceni_backend_host.mem_info(card->device, &free_bytes, &total)) {
        td_state_publish(card->ordinal, total - free_bytes);
    }
}

cu_result td_card_check_room(const td_card *card, uint64_t size) {
    uint64_t free_bytes, total;
    td_card_free_bytes(card, &free_bytes, &total);
    return size <= free_bytes ? CU_SUCCESS : CU_ERROR_OUT_OF_MEMORY;
}

/* The card itself, and those whose contexts may use its memory. */
static size_t grants_of(const td_card *card, ceni_grant grants[TD_CARDS_MAX]) {
    size_t count = 0;
    uint64_t bit = (uint64_t)1 << card->ordinal, given = bit;
    grants[count++] = (ceni_grant){card->device, CENI_ACCESS_READ_WRITE};
    for (const td_context *c = td_contexts; c; c = c->next) {
        uint64_t other = (uint64_t)1 << c->card->ordinal;
        if (c->live && c->peers & bit && !(given & other)) {
            given |= other;
            grants[count++] = (ceni_grant){c->card->device, CENI_ACCESS_READ_WRITE};
        }
    }
    return count;
}

static cen_status map_page(td_card *card, uint64_t size, uint64_t *addr) {
    const ceni_backend *host = &ceni_backend_host;
    cen_device *d = card->device;
    ceni_page page;
    uint64_t start;
    ceni_grant grants[TD_CARDS_MAX];
    cen_status status = host->va_reserve(d, size, 0, &start);
    if (status) {
        return status;
    }
    status = host->page_create(d, size, 0, &page);
    if (!status) {
        status = host->page_map(d, start, size, page);
        if (!status) {
            status = host->page_access(d, start, size, grants, grants_of(card, grants));
            if (status) {
                host->page_unmap(d, start, size);
            }
        }
        host->page_release(d, page);
    }
    if (status) {
        host->va_free(d, start, size);
    } else {
        *addr = start;
    }
    return status;
}

cu_result td_range_take(td_card *card, uint64_t size, td_range *range) {
    if (size > card->device->total_bytes) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    size = td_round(size, card->device->granularity);
    TD_TRY(td_card_check_room(card, size));
    if (ceni_grow(&card->ranges, &card->range_capacity, card->range_count + 1,
                  sizeof *card->ranges)) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    uint64_t addr;
    TD_TRY(td_result(map_page(card, size, &addr)));
    *range = (td_range){addr, size};
    card->ranges[card->range_count++] = *range;
    td_publish(card);
    return CU_SUCCESS;
}

void td_range_drop(td_card *card, td_range range) {
    if (!range.size) {
        return;
    }
    ceni_backend_host.page_unmap(card->device, range.addr, range.size);
    ceni_backend_host.va_free(card->device, range.addr, range.size);
    size_t i = 0;
    while (i < card->range_count && card->ranges[i].addr != range.addr) {
        i++;
    }
    if (i < card->range_count) {
        card->ranges[i] = card->ranges[--card->range_count];
    }
    td_publish(card);
}

void td_range_share(const td_card *card, uint64_t addr, const td_card *with) {
    const ceni_grant grant = {with->device, CENI_ACCESS_READ_WRITE};
    for (size_t i = 0; i < card->range_count; i++) {
        const td_range *r = &card->ranges[i];
        if (!addr || addr - r->addr < r->size) {
            ceni_backend_host.page_access(card->device, r->addr, r->size, &grant, 1);
        }
    }
}
