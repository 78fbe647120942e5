/* A writer and a reader of blocks that halt in each period of the blocks' life, for somebody to flip bits then.
 *
 *   period write FILE BLOCKS    says "ready ADDRESS", "written FAILED", "synced FAILED"
 *   period read FILE BLOCKS     says "arrived ADDRESS", then for each block: = right, x wrong, E error
 *
 * After each line but the last it waits for one. What fails is done again once, from data made anew. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 4096 };

static void make(uint64_t *to, uint64_t block) {
    uint64_t x = (block + 1) * 0x9E3779B97F4A7C15u;
    for (int at = 0; at < BLOCK / 8; at++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        to[at] = x;
    }
}

static void halt(const char *what, unsigned long long value) {
    char line[8];
    printf("%s %llu\n", what, value);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) exit(4);
}

int main(int count, char **words) {
    if (count != 4) return 2;
    int writes = strcmp(words[1], "write") == 0;
    int file = open(words[2], writes ? O_RDWR | O_CREAT : O_RDONLY, 0600);
    int blocks = atoi(words[3]);
    char *data = aligned_alloc(BLOCK, (size_t)blocks * BLOCK);
    if (file < 0 || !data) return 3;
    if (writes) {
        unsigned failed = 0;
        for (int block = 0; block < blocks; block++) make((uint64_t *)(data + (size_t)block * BLOCK), block);
        halt("ready", (uintptr_t)data);
        for (int block = 0; block < blocks; block++) {
            char *from = data + (size_t)block * BLOCK;
            if (pwrite(file, from, BLOCK, (off_t)block * BLOCK) == BLOCK) continue;
            failed++;
            make((uint64_t *)from, block);
            if (pwrite(file, from, BLOCK, (off_t)block * BLOCK) != BLOCK) return 5;
        }
        halt("written", failed);
        int told = fsync(file) != 0;
        if (told) {
            for (int block = 0; block < blocks; block++) {
                char *from = data + (size_t)block * BLOCK;
                make((uint64_t *)from, block);
                if (pwrite(file, from, BLOCK, (off_t)block * BLOCK) != BLOCK) return 6;
            }
            if (fsync(file) != 0) return 7;
        }
        halt("synced", told);
        return 0;
    }
    char *found = calloc(blocks + 1, 1);
    uint64_t right[BLOCK / 8];
    for (int block = 0; block < blocks; block++) {
        ssize_t got = pread(file, data + (size_t)block * BLOCK, BLOCK, (off_t)block * BLOCK);
        if (got != BLOCK) got = pread(file, data + (size_t)block * BLOCK, BLOCK, (off_t)block * BLOCK);
        found[block] = got == BLOCK ? '=' : 'E';
    }
    halt("arrived", (uintptr_t)data);
    for (int block = 0; block < blocks; block++) {
        make(right, block);
        if (found[block] == '=' && memcmp(right, data + (size_t)block * BLOCK, BLOCK) != 0) found[block] = 'x';
    }
    puts(found);
    return 0;
}
