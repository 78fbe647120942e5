/*
 * Writes and reads a file of a guarded directory with checksums that are made where the data are made, and verified
 * where they are used.
 *
 *     rotproof guard init DIRECTORY
 *     cargo build --release -p rotproof-guard-c
 *     cc -Icrates/guard-c/include examples/c/guarded_file.c target/release/librotproof_guard.a -lpthread -ldl -lm \
 *         -o guarded_file && ./guarded_file DIRECTORY
 *
 * Bits flip on purpose: in the writer's memory, in the reader's, and in the file. Each flip is seen.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rotproof_guard.h"

enum { BLOCK = 4096, BLOCKS = 100, BYTES = BLOCKS * BLOCK };

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, rotproof_guard_last_error());
    exit(1);
}

static void expect(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "not so: %s\n", what);
        exit(1);
    }
}

static void call(rotproof_guard_status status, const char *what)
{
    if (status != ROTPROOF_GUARD_STATUS_OK)
        fail(what);
}

/* A bit of the file flips without the guard, and the times stay as they were, as if the disk had done it. */
static void flip_below(const char *path, off_t place)
{
    unsigned char byte;
    struct stat before;
    int file = open(path, O_RDWR);
    expect(file >= 0 && fstat(file, &before) == 0, "the file is there");
    expect(pread(file, &byte, 1, place) == 1, "it can be read");
    byte ^= 0x10;
    expect(pwrite(file, &byte, 1, place) == 1, "it can be written");
    struct timespec times[2] = { before.st_atim, before.st_mtim };
    expect(futimens(file, times) == 0 && fsync(file) == 0, "the times are set");
    close(file);
}

int main(int count, char **words)
{
    if (count != 2) {
        fprintf(stderr, "usage: %s DIRECTORY, which is guarded\n", words[0]);
        return 2;
    }
    char path[4096];
    snprintf(path, sizeof path, "%s/from-c", words[1]);
    rotproof_guard *guard;
    rotproof_guard_file *file;
    call(rotproof_guard_open(words[1], NULL, &guard), "opening the guard");
    call(rotproof_guard_file_open(guard, path, O_RDWR | O_CREAT | O_TRUNC, 0644, &file), "opening the file");

    /* The writer: sums first, as soon as the data are what they should be. */
    static unsigned char data[BYTES], back[BYTES];
    static uint64_t sums[BLOCKS + 1], after[BLOCKS + 1];
    for (size_t at = 0; at < BYTES; at++)
        data[at] = (unsigned char)(at * 31 + (at >> 8));
    const uint64_t offset = 1000;
    size_t pieces = rotproof_guard_pieces(offset, BYTES), done;
    expect(pieces == BLOCKS + 1, "a stretch that is not aligned touches one block more");
    call(rotproof_guard_sums(guard, data, BYTES, offset, sums, pieces), "making sums");

    /* What happens to the data after that is seen before they reach the file. */
    data[5000] ^= 1;
    expect(rotproof_guard_write(file, data, BYTES, offset, sums, pieces, &done) == ROTPROOF_GUARD_STATUS_BOUNDARY
               && rotproof_guard_last_block() == 1 && done == 0 && rotproof_guard_file_size(file) == 0,
           "a flip in the writer's memory is refused, and nothing was written");
    data[5000] ^= 1;
    call(rotproof_guard_write(file, data, BYTES, offset, sums, pieces, &done), "writing");
    expect(done == BYTES, "all of it was written");
    call(rotproof_guard_sync(file, false), "making it durable");

    /* The reader: gets sums with the data, and verifies them again when it uses them. */
    call(rotproof_guard_read(file, back, BYTES, offset, after, BLOCKS + 1, &done), "reading");
    expect(done == BYTES && memcmp(back, data, BYTES) == 0, "what was written is read");
    expect(memcmp(after, sums, sizeof sums) == 0, "with the sums that its writer made");
    back[70000] ^= 4;
    call(rotproof_guard_sums(guard, back, BYTES, offset, after, BLOCKS + 1), "making sums");
    expect(memcmp(after, sums, sizeof sums) != 0, "a flip in the reader's memory is seen");

    /* A flip below the guard: of that block nothing is handed out, of the others everything. */
    flip_below(path, 40 * BLOCK + 7);
    expect(rotproof_guard_read(file, back, 10, 40 * BLOCK, NULL, 0, &done) == ROTPROOF_GUARD_STATUS_ROTTEN
               && rotproof_guard_last_block() == 40,
           "a flip below is an error");
    call(rotproof_guard_read(file, back, 3 * BLOCK, 38 * BLOCK, NULL, 0, &done), "reading up to it");
    expect(done == 2 * BLOCK, "what is before it is read");
    call(rotproof_guard_read(file, back, BLOCK, 41 * BLOCK, NULL, 0, &done), "reading behind it");

    /* What is not there, or makes no sense, is told. */
    rotproof_guard_file *none;
    expect(rotproof_guard_file_open(guard, "/etc/passwd", O_RDONLY, 0, &none) == ROTPROOF_GUARD_STATUS_INVALID
               && none == NULL,
           "a file of nobody's guard is refused");
    expect(rotproof_guard_read(NULL, back, 1, 0, NULL, 0, &done) == ROTPROOF_GUARD_STATUS_INVALID, "NULL is refused");
    expect(rotproof_guard_write(file, data, BLOCK, 1, sums, 1, &done) == ROTPROOF_GUARD_STATUS_INVALID,
           "too few sums are refused");

    rotproof_guard_counts counts;
    call(rotproof_guard_count(guard, &counts), "counting");
    expect(counts.refused > 0 && counts.light + counts.strong > BLOCKS && counts.unvouched == 0, "it was counted");
    rotproof_guard_free(guard);
    call(rotproof_guard_set_size(file, 0), "cutting the file");
    rotproof_guard_file_close(file);
    puts("every flip was seen");
    return 0;
}
