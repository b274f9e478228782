//! A thread that runs on time: sched(7), and the slack of its timers (prctl(2)).

use std::io;

/// Makes the calling thread run before all ordinary ones whenever it has work, and wake on time when its timers expire. The thread must not
/// spin: no ordinary thread could run meanwhile.
///
/// # Errors
/// `CAP_SYS_NICE` is missing.
pub fn prefer_this_thread(priority: i32) -> io::Result<()> {
    // SAFETY: `sched_param` is made of integers, for which zeros are valid.
    let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    parameter.sched_priority = priority;
    // SAFETY: 0 is the calling thread, and the kernel only reads `parameter`.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameter) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: PR_SET_TIMERSLACK takes a number and touches no memory.
    if unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preferred_thread_has_its_class_and_no_slack() {
        let asked = std::thread::spawn(|| {
            prefer_this_thread(1)?;
            // SAFETY: 0 is the calling thread; nothing else is passed.
            let class = unsafe { libc::sched_getscheduler(0) };
            // SAFETY: PR_GET_TIMERSLACK takes nothing and touches no memory.
            let slack_ns = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
            Ok::<_, io::Error>((class, slack_ns))
        });
        match asked.join().unwrap() {
            // Newer kernels give a thread of this class no slack at all, whatever it asked for.
            Ok((class, slack_ns)) => {
                assert_eq!(class, libc::SCHED_FIFO);
                assert!(matches!(slack_ns, 0 | 1), "{slack_ns} ns");
            }
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                eprintln!("left out: CAP_SYS_NICE is missing");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
