//! Files whose layout changes all the time: what is held in memory does not grow with the changes.
//!
//! The allocator counts for the whole process, hence one test in this file.

mod counting;
mod reading;

use counting::most_held;
use reading::build::Pcapng;
use reading::compare::{answer, expected, options, plain, same};
use reading::{Scratch, naive};
use weir_pipeline::Way;

#[test]
fn sections_cost_no_memory_of_their_own() {
    /// Of a file of 4.2 MB that is read in windows of 1 MiB; a buffer for each section would be 3.9 GB.
    const MOST: usize = 32 << 20;
    const SECTIONS: u32 = 30_000;
    let mut file = Pcapng::default();
    for i in 0..SECTIONS {
        file.section(i % 3 == 0);
        file.interface(1, 0, 6);
        file.packet(&[i as u8; 60]);
    }
    let right = expected(&file.bytes, &naive::read(&file.bytes), |_, _| true);
    let scratch = Scratch::new("sections", &file.bytes);
    for workers in [1, 2, 4] {
        let what = format!("{workers} workers");
        let most = most_held(|| same(&what, &answer(plain(&scratch), "", options(Way::Read, workers)).0, &right));
        assert!(most < MOST, "{what}: {most} bytes");
    }
}
