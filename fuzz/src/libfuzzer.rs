//! The entry point that libFuzzer calls with each input. The target is named by the environment
//! variable `CALLGATE_FUZZ_TARGET`, so that one build serves all targets.
//! Without the variable the targets are listed.
//!
//! libFuzzer brings `main`, and calls the two functions as C does: hence the `unsafe`.

#![no_main]
#![expect(unsafe_code, reason = "libFuzzer calls a C function with a pointer")]
#![expect(
    clippy::disallowed_methods,
    reason = "the target is named by a variable"
)]

use std::sync::OnceLock;

use callgate_fuzz::{Target, list, target};

static CHOSEN: OnceLock<&'static Target> = OnceLock::new();

/// Chooses the target, or lists all, before libFuzzer does anything.
#[unsafe(no_mangle)]
extern "C" fn LLVMFuzzerInitialize(_: *const i32, _: *const *const *const u8) -> i32 {
    let Ok(name) = std::env::var("CALLGATE_FUZZ_TARGET") else {
        print!("{}", list());
        std::process::exit(0);
    };
    let report = std::panic::take_hook();
    // A panic in any thread is a finding, caught by libFuzzer as the signal of the abort.
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
    CHOSEN.get_or_init(|| target(&name).expect("a known target"));
    0
}

/// Runs the chosen target on one input.
#[unsafe(no_mangle)]
extern "C" fn LLVMFuzzerTestOneInput(data: *const u8, size: usize) -> i32 {
    let input = match size {
        0 => &[][..],
        // SAFETY: libFuzzer passes a buffer of `size` readable bytes, unchanged until we return.
        _ => unsafe { std::slice::from_raw_parts(data, size) },
    };
    (CHOSEN.get().expect("chosen at the start").run)(input);
    0
}
