//! Options of fio's that say nothing of what a load does: they are taken, and each is named with the reason.

/// Why an option is without effect here; `None` of one that is not among them.
pub(super) fn without_effect(name: &str) -> Option<&'static str> {
    let is_one_of = |list: &[&str]| list.contains(&name);
    Some(match name {
        _ if is_one_of(&OUTPUT) => "shapes what fio prints and logs, and nothing here",
        _ if is_one_of(&PROCESS) => "says how fio's processes run, and nothing here",
        _ if is_one_of(&FILES) => {
            "says how fio makes and opens its files; here the subject of the trial does"
        }
        _ if is_one_of(&SUBMIT) => {
            "says how fio hands requests to the kernel; here each goes when there is room"
        }
        _ if is_one_of(&CONTENT) => {
            "says what fio writes; here every block has a content of its own, by which it is verified"
        }
        _ if is_one_of(&VERIFY) => {
            "says how fio verifies; here all is verified as it is read, and in the end"
        }
        name if name.starts_with("libblkio_") => "says how fio reaches the device; here the stack does",
        _ => return None,
    })
}

const OUTPUT: [&str; 35] = [
    "bwavgtime",
    "clat_percentiles",
    "disable_bw",
    "disable_bw_measurement",
    "disable_clat",
    "disable_lat",
    "disable_slat",
    "gtod_reduce",
    "iopsavgtime",
    "lat_percentiles",
    "log_alternate_epoch",
    "log_avg_msec",
    "log_compression",
    "log_entries",
    "log_hist_coarseness",
    "log_hist_msec",
    "log_issue_time",
    "log_max_value",
    "log_offset",
    "log_prio",
    "log_store_compressed",
    "log_unix_epoch",
    "log_window_value",
    "per_job_logs",
    "percentile_list",
    "significant_figures",
    "slat_percentiles",
    "stats",
    "unified_rw_reporting",
    "write_bw_log",
    "write_hist_log",
    "write_iolog",
    "block_error_percentiles",
    "write_iops_log",
    "write_lat_log",
];

const PROCESS: [&str; 29] = [
    "cgroup",
    "cgroup_nodelete",
    "cgroup_weight",
    "clocksource",
    "continue_on_error",
    "cpumask",
    "cpus_allowed",
    "cpus_allowed_policy",
    "create_serialize",
    "error_dump",
    "exitall_on_error",
    "gid",
    "gtod_cpu",
    "hugepage-size",
    "ignore_error",
    "iomem",
    "ioscheduler",
    "lockmem",
    "mem",
    "mem_align",
    "iomem_align",
    "nice",
    "numa_cpu_nodes",
    "numa_mem_policy",
    "prio",
    "prioclass",
    "thinktime_spin",
    "uid",
    "zero_buffers_once",
];

const FILES: [&str; 16] = [
    "allow_file_create",
    "allow_mounted_write",
    "create_fsync",
    "create_on_open",
    "fadvise_hint",
    "file_service_type",
    "filename_format",
    "lockfile",
    "nrfiles",
    "offset",
    "offset_align",
    "offset_increment",
    "openfiles",
    "overwrite",
    "pre_read",
    "unlink_each_loop",
];

const SUBMIT: [&str; 18] = [
    "force_async",
    "hipri_percentage",
    "io_submit_mode",
    "iodepth_batch",
    "iodepth_batch_complete",
    "iodepth_batch_complete_max",
    "iodepth_batch_complete_min",
    "iodepth_batch_submit",
    "iodepth_low",
    "nonvectored",
    "nowait",
    "serialize_overlap",
    "sqthread_poll",
    "sqthread_poll_cpu",
    "uncached",
    "userspace_reap",
    "dma_iov",
    "registerbufs",
];

const CONTENT: [&str; 6] = [
    "buffer_compress_chunk",
    "buffer_pattern",
    "dedupe_mode",
    "random_generator",
    "softrandommap",
    "zero_buffers",
];

const VERIFY: [&str; 15] = [
    "experimental_verify",
    "verify_async",
    "verify_async_cpus",
    "verify_backlog",
    "verify_backlog_batch",
    "verify_dump",
    "verify_fatal",
    "verify_header_seed",
    "verify_interval",
    "verify_offset",
    "verify_pattern",
    "verify_state_load",
    "verify_state_save",
    "verify_write_sequence",
    "verifysort",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_option_is_there_for_two_reasons() {
        let all = [&OUTPUT[..], &PROCESS, &FILES, &SUBMIT, &CONTENT, &VERIFY].concat();
        for (index, name) in all.iter().enumerate() {
            assert!(!all[..index].contains(name), "{name}");
            assert!(without_effect(name).is_some());
        }
        assert_eq!(without_effect("stonewall"), None);
    }
}
