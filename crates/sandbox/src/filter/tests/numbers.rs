//! The table's numbers against the C library's, for the machine the tests run on.

use super::*;

macro_rules! known {
    ($($name:ident),*) => {
        vec![$((stringify!($name), libc::$name)),*]
    };
}

/// What the C library knows on both machines.
fn common() -> Vec<(&'static str, libc::c_long)> {
    known![
        SYS_getxattr,
        SYS_lgetxattr,
        SYS_listxattr,
        SYS_llistxattr,
        SYS_accept,
        SYS_accept4,
        SYS_acct,
        SYS_add_key,
        SYS_adjtimex,
        SYS_bind,
        SYS_bpf,
        SYS_chroot,
        SYS_clock_adjtime,
        SYS_clock_settime,
        SYS_clone,
        SYS_clone3,
        SYS_connect,
        SYS_delete_module,
        SYS_execve,
        SYS_execveat,
        SYS_fanotify_init,
        SYS_fanotify_mark,
        SYS_fchmod,
        SYS_fchmodat,
        SYS_fchown,
        SYS_fchownat,
        SYS_finit_module,
        SYS_fremovexattr,
        SYS_fsconfig,
        SYS_fsetxattr,
        SYS_fsmount,
        SYS_fsopen,
        SYS_fspick,
        SYS_init_module,
        SYS_inotify_add_watch,
        SYS_io_uring_enter,
        SYS_io_uring_register,
        SYS_io_uring_setup,
        SYS_ioctl,
        SYS_ioprio_set,
        SYS_kcmp,
        SYS_kexec_file_load,
        SYS_kexec_load,
        SYS_keyctl,
        SYS_listen,
        SYS_lookup_dcookie,
        SYS_lremovexattr,
        SYS_lsetxattr,
        SYS_migrate_pages,
        SYS_mount,
        SYS_mount_setattr,
        SYS_move_mount,
        SYS_move_pages,
        SYS_mq_getsetattr,
        SYS_mq_notify,
        SYS_mq_open,
        SYS_mq_timedreceive,
        SYS_mq_timedsend,
        SYS_mq_unlink,
        SYS_msgctl,
        SYS_msgget,
        SYS_msgrcv,
        SYS_msgsnd,
        SYS_name_to_handle_at,
        SYS_nfsservctl,
        SYS_open_by_handle_at,
        SYS_open_tree,
        SYS_perf_event_open,
        SYS_personality,
        SYS_pidfd_getfd,
        SYS_pivot_root,
        SYS_prlimit64,
        SYS_process_madvise,
        SYS_process_mrelease,
        SYS_process_vm_readv,
        SYS_process_vm_writev,
        SYS_ptrace,
        SYS_quotactl,
        SYS_quotactl_fd,
        SYS_reboot,
        SYS_removexattr,
        SYS_request_key,
        SYS_sched_setaffinity,
        SYS_sched_setattr,
        SYS_sched_setparam,
        SYS_sched_setscheduler,
        SYS_seccomp,
        SYS_semctl,
        SYS_semget,
        SYS_semop,
        SYS_semtimedop,
        SYS_setdomainname,
        SYS_sethostname,
        SYS_setns,
        SYS_setpriority,
        SYS_settimeofday,
        SYS_setxattr,
        SYS_shmat,
        SYS_shmctl,
        SYS_shmdt,
        SYS_shmget,
        SYS_socket,
        SYS_socketpair,
        SYS_swapoff,
        SYS_swapon,
        SYS_syslog,
        SYS_umount2,
        SYS_unshare,
        SYS_userfaultfd,
        SYS_utimensat,
        SYS_vhangup
    ]
}

/// What it knows on this machine only.
#[cfg(target_arch = "x86_64")]
fn native() -> Vec<(&'static str, libc::c_long)> {
    known![
        SYS__sysctl,
        SYS_chmod,
        SYS_chown,
        SYS_fchmodat2,
        SYS_fork,
        SYS_futimesat,
        SYS_ioperm,
        SYS_iopl,
        SYS_lchown,
        SYS_modify_ldt,
        SYS_sysfs,
        SYS_uselib,
        SYS_ustat,
        SYS_utime,
        SYS_utimes,
        SYS_vfork,
        SYS_vserver
    ]
}

#[cfg(not(target_arch = "x86_64"))]
fn native() -> Vec<(&'static str, libc::c_long)> {
    Vec::new()
}

/// The newest calls, and those that kernels have long dropped, are in no C library of ours.
const UNKNOWN_TO_LIBC_MAX: usize = 12;

#[test]
fn the_table_agrees_with_the_c_library() {
    let arch = NATIVE.expect("a known machine");
    let mut unknown = 0;
    let known: Vec<_> = common().into_iter().chain(native()).collect();
    for (number, row) in arch.calls() {
        let name = format!("SYS_{}", row.name);
        match known.iter().find(|(known, _)| *known == name) {
            Some((_, known)) => assert_eq!(libc::c_long::from(number), *known, "{name}"),
            None => unknown += 1,
        }
    }
    assert!(unknown <= UNKNOWN_TO_LIBC_MAX, "{unknown} unknown");
}

/// No number is said twice, none lies above the ceiling.
#[test]
fn numbers_are_unique() {
    for arch in ARCHES {
        let mut numbers: Vec<u32> = arch.calls().map(|(number, _)| number).collect();
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(numbers.last() <= Some(&arch.ceiling()));
    }
}
