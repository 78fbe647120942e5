/*
 * A disk in memory, in C, that lies as the fault engine of Rotproof decides.
 *
 *     cargo build --release -p rotproof-cabi
 *     cc -Icrates/cabi/include examples/c/faulty_disk.c target/release/librotproof_fault.a -lpthread -ldl -lm \
 *         -o faulty_disk && ./faulty_disk ledger.jsonl
 *
 * Everything that a storage stack must do is in carry(): it asks, and does the steps that it is told.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rotproof_fault.h"

enum { BLOCK = 4096, BLOCKS = 64 };

static unsigned char medium[BLOCKS * BLOCK];
/* The disk serves one request at a time; the engine needs no lock. */
static pthread_mutex_t medium_lock = PTHREAD_MUTEX_INITIALIZER;

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, rotproof_last_error());
    exit(1);
}

static void expect(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "not so: %s\n", what);
        exit(1);
    }
}

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void pass_time(uint64_t nanoseconds)
{
    struct timespec span = { (time_t)(nanoseconds / 1000000000u), (long)(nanoseconds % 1000000000u) };
    nanosleep(&span, NULL);
}

/* The device below: what it does to the request as it is, into or from `data`. */
static int serve(const rotproof_io *io, unsigned char *read_into)
{
    pthread_mutex_lock(&medium_lock);
    switch (io->operation) {
    case ROTPROOF_OPERATION_READ:
        memcpy(read_into, medium + io->offset, io->length);
        break;
    case ROTPROOF_OPERATION_WRITE:
        memcpy(medium + io->offset, io->write_data, io->length);
        break;
    case ROTPROOF_OPERATION_DISCARD:
    case ROTPROOF_OPERATION_WRITE_ZEROES:
        memset(medium + io->offset, 0, io->length);
        break;
    default:
        break;
    }
    pthread_mutex_unlock(&medium_lock);
    return 0;
}

/* Carries a request over the disk as the engine decides. Gives 0 or an errno. */
static int carry(rotproof_queue *queue, const rotproof_io *io)
{
    rotproof_request *request;
    if (rotproof_begin(queue, io, &request) != ROTPROOF_STATUS_OK)
        fail("rotproof_begin");
    if (request == NULL)
        return serve(io, io->read_data);
    for (;;) {
        rotproof_step step;
        int error = 0;
        if (rotproof_next(request, now_ns(), &step) != ROTPROOF_STATUS_OK)
            fail("rotproof_next");
        switch (step.kind) {
        case ROTPROOF_STEP_KIND_READ_BELOW: {
            rotproof_io below = { .operation = ROTPROOF_OPERATION_READ, .offset = step.offset, .length = step.length };
            error = serve(&below, step.data);
            break;
        }
        case ROTPROOF_STEP_KIND_WAIT:
            pass_time(step.duration_ns);
            break;
        case ROTPROOF_STEP_KIND_HANG: {
            uint64_t began = now_ns();
            while (!rotproof_is_released(request) && now_ns() - began < step.duration_ns)
                pass_time(1000000);
            break;
        }
        case ROTPROOF_STEP_KIND_SUBMIT:
            error = serve(io, step.data);
            break;
        case ROTPROOF_STEP_KIND_COMPLETE:
            error = step.error;
            rotproof_request_free(request);
            return error;
        }
        if (rotproof_step_done(request, error) != ROTPROOF_STATUS_OK)
            fail("rotproof_step_done");
    }
}

static int disk_write(rotproof_queue *queue, uint64_t block, unsigned char fill)
{
    unsigned char data[BLOCK];
    memset(data, fill, BLOCK);
    rotproof_io io = { .operation = ROTPROOF_OPERATION_WRITE, .offset = block * BLOCK, .length = BLOCK,
                       .write_data = data, .now_ns = now_ns() };
    int error = carry(queue, &io);
    for (int byte = 0; byte < BLOCK; byte++)
        expect(data[byte] == fill, "the caller's data are never touched");
    return error;
}

static int disk_read(rotproof_queue *queue, uint64_t block, unsigned char *data, const char *tag)
{
    rotproof_io io = { .operation = ROTPROOF_OPERATION_READ, .offset = block * BLOCK, .length = BLOCK,
                       .read_data = data, .tag = tag, .now_ns = now_ns() };
    return carry(queue, &io);
}

static uint64_t hits_of(const rotproof_engine *engine, const char *rule)
{
    uint64_t hits;
    if (rotproof_rule_hits(engine, rule, NULL, &hits) != ROTPROOF_STATUS_OK)
        fail("rotproof_rule_hits");
    return hits;
}

/* Another thread with a queue of its own: reads until it has met the faults that come and go. */
static void *read_on_and_on(void *engine)
{
    rotproof_queue *queue;
    unsigned char data[BLOCK];
    if (rotproof_queue_new(engine, &queue) != ROTPROOF_STATUS_OK)
        fail("rotproof_queue_new");
    for (int round = 0; round < 2000; round++) {
        int error = disk_read(queue, (uint64_t)(40 + round % 8), data, NULL);
        expect(error == 0 || error == EIO, "nothing else can happen here");
    }
    rotproof_queue_free(queue);
    return NULL;
}

static void *read_what_hangs(void *engine)
{
    rotproof_queue *queue;
    unsigned char data[BLOCK];
    if (rotproof_queue_new(engine, &queue) != ROTPROOF_STATUS_OK)
        fail("rotproof_queue_new");
    expect(disk_read(queue, 50, data, NULL) == 0, "a read that hung succeeds in the end");
    rotproof_queue_free(queue);
    return NULL;
}

int main(int argument_count, char **arguments)
{
    const rotproof_geometry geometry = { .device_bytes = sizeof medium, .block_bytes = 512, .seed = 42 };
    const char *rules = "name=flip, read, offset=0: bit_flip(byte=3, bit=0)\n"
                        "name=lost, write, offset=4KiB, nth=2: lost_write\n"
                        "name=bad, read, offset=8KiB, once: medium_error\n"
                        "name=slow, read, tag=big.img: delay(1ms)\n"
                        "name=full, write, offset=12KiB: no_space\n";
    rotproof_engine *engine;
    rotproof_queue *queue;
    unsigned char data[BLOCK];

    expect(rotproof_abi_version() == 1, "the library is that of the header");
    if (rotproof_engine_new(&geometry, rules, &engine) != ROTPROOF_STATUS_OK)
        fail("rotproof_engine_new");
    if (rotproof_queue_new(engine, &queue) != ROTPROOF_STATUS_OK)
        fail("rotproof_queue_new");

    /* A lie on the way up; the medium keeps the truth. */
    expect(disk_write(queue, 0, 7) == 0, "the write succeeds");
    expect(disk_read(queue, 0, data, NULL) == 0, "the read succeeds");
    expect(data[3] == 6 && data[2] == 7 && medium[3] == 7, "one bit is wrong, and not on the medium");

    /* A write that is lost: the old data are read. */
    expect(disk_write(queue, 1, 1) == 0 && disk_write(queue, 1, 2) == 0, "both are acknowledged");
    expect(disk_read(queue, 1, data, NULL) == 0 && data[0] == 1, "the second was lost");

    /* Errors. */
    expect(disk_read(queue, 2, data, NULL) == EIO && disk_read(queue, 2, data, NULL) == 0, "one error");
    expect(disk_write(queue, 3, 1) == ENOSPC && medium[3 * BLOCK] == 0, "no space");

    /* A delay for what is marked as one file. */
    uint64_t began = now_ns();
    expect(disk_read(queue, 4, data, "big.img") == 0 && now_ns() - began >= 1000000, "it took its time");

    /* Rules rest, act again and go. */
    expect(rotproof_rule_set_state(engine, "flip", ROTPROOF_RULE_STATE_PAUSED) == ROTPROOF_STATUS_OK, "paused");
    expect(disk_read(queue, 0, data, NULL) == 0 && data[3] == 7, "the truth");
    expect(rotproof_rule_set_state(engine, "flip", ROTPROOF_RULE_STATE_ACTIVE) == ROTPROOF_STATUS_OK, "active");
    expect(disk_read(queue, 0, data, NULL) == 0 && data[3] == 6, "the lie");
    expect(rotproof_rule_set_state(engine, "flip", ROTPROOF_RULE_STATE_REMOVED) == ROTPROOF_STATUS_OK, "removed");
    expect(disk_read(queue, 0, data, NULL) == 0 && data[3] == 7, "the truth again");

    /* Mistakes are told. */
    expect(rotproof_rules_add(engine, "wirte: zeros") == ROTPROOF_STATUS_INVALID, "no such condition");
    expect(strstr(rotproof_last_error(), "did you mean `write`?") != NULL, "it says what was meant");
    expect(rotproof_rule_set_state(engine, "flip", 1) == ROTPROOF_STATUS_INVALID, "it was removed");
    rotproof_io beyond = { .operation = ROTPROOF_OPERATION_READ, .offset = sizeof medium, .length = BLOCK,
                           .read_data = data };
    rotproof_request *request;
    expect(rotproof_begin(queue, &beyond, &request) == ROTPROOF_STATUS_INVALID && request == NULL, "beyond the end");

    /* Several threads, while rules come and go; then one that hangs until it is released. */
    pthread_t readers[3];
    for (int reader = 0; reader < 3; reader++)
        expect(pthread_create(&readers[reader], NULL, read_on_and_on, engine) == 0, "a thread starts");
    for (int round = 0; round < 50; round++) {
        expect(rotproof_rules_add(engine, "- { name: now, match: { offset: 160KiB..192KiB }, effect: error }")
                   == ROTPROOF_STATUS_OK, "added");
        expect(rotproof_rule_set_state(engine, "now", ROTPROOF_RULE_STATE_REMOVED) == ROTPROOF_STATUS_OK, "removed");
    }
    for (int reader = 0; reader < 3; reader++)
        pthread_join(readers[reader], NULL);
    expect(rotproof_rules_add(engine, "name=stuck, read, offset=200KiB: hang") == ROTPROOF_STATUS_OK, "added");
    expect(pthread_create(&readers[0], NULL, read_what_hangs, engine) == 0, "a thread starts");
    for (uint64_t released = 0; released == 0; pass_time(1000000))
        expect(rotproof_release(engine, "stuck", &released) == ROTPROOF_STATUS_OK, "released");
    pthread_join(readers[0], NULL);

    /* What happened. */
    expect(hits_of(engine, "lost") == 1 && hits_of(engine, "bad") == 1 && hits_of(engine, "full") == 1, "counted");
    char *report;
    if (rotproof_report(engine, &report) != ROTPROOF_STATUS_OK)
        fail("rotproof_report");
    expect(strstr(report, "\"name\":\"lost\"") != NULL, "the report names every rule");
    rotproof_text_free(report);
    uint64_t records;
    if (rotproof_ledger_length(engine, &records) != ROTPROOF_STATUS_OK)
        fail("rotproof_ledger_length");
    if (argument_count > 1 && rotproof_ledger_write(engine, arguments[1]) != ROTPROOF_STATUS_OK)
        fail("rotproof_ledger_write");
    printf("%s\n", records >= 7 ? "every fault was met" : "some faults were not met");

    /* One that is given up on the way, after its engine has gone. */
    rotproof_io given_up = { .operation = ROTPROOF_OPERATION_READ, .offset = 200 * 1024, .length = BLOCK,
                             .read_data = data };
    if (rotproof_begin(queue, &given_up, &request) != ROTPROOF_STATUS_OK)
        fail("rotproof_begin");
    rotproof_engine_free(engine);
    rotproof_queue_free(queue);
    rotproof_step step;
    expect(rotproof_next(request, now_ns(), &step) == ROTPROOF_STATUS_OK, "it goes on");
    expect(rotproof_next(request, now_ns(), &step) == ROTPROOF_STATUS_INVALID, "but not by two steps at once");
    rotproof_request_free(request);
    return 0;
}
