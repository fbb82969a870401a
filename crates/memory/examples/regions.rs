//! Memory that each policy obtains on this machine, and its cost.
//!
//!     cargo run --release -p weir-memory --example regions -- [MIB...]
//!
//! For each size (default 1, 4, 64, 256 MiB) and policy: the time to make the region, the time to write to each of its pages
//! once, and the obtained memory as the kernel reports it. Medians of five.

use std::time::Instant;
use weir_memory::{Policy, Region, Request};

const ROUNDS: usize = 5;

fn main() {
    let sizes: Vec<usize> = std::env::args()
        .skip(1)
        .map(|size| size.parse().expect("a number of MiB"))
        .collect();
    let sizes = if sizes.is_empty() {
        vec![1, 4, 64, 256]
    } else {
        sizes
    };
    println!(
        "{:>6}  {:<10}  {:>8}  {:>9}  {:>9}",
        "MiB", "policy", "populate", "make, ms", "touch, ms"
    );
    for size in sizes {
        for (pages, _) in Policy::ALL {
            for populate in [false, true] {
                show(
                    size,
                    Request {
                        pages,
                        populate,
                        ..Request::default()
                    },
                );
            }
        }
    }
}

fn show(mib: usize, request: Request) {
    let (mut make, mut touch, mut obtained) = (Vec::new(), Vec::new(), None);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let mut region = match Region::zeroed(mib << 20, &request) {
            Ok(region) => region,
            Err(error) => {
                return println!(
                    "{mib:>6}  {:<10}  {:>8}  {error}",
                    request.pages, request.populate
                );
            }
        };
        make.push(start.elapsed());
        let start = Instant::now();
        for byte in region.bytes_mut().iter_mut().step_by(4096) {
            *byte = 1;
        }
        touch.push(start.elapsed());
        obtained = Some(region.obtained());
    }
    let median = |times: &mut Vec<std::time::Duration>| {
        times.sort();
        times[times.len() / 2].as_secs_f64() * 1e3
    };
    let (make, touch) = (median(&mut make), median(&mut touch));
    let obtained = obtained.expect("there was a round");
    println!(
        "{mib:>6}  {:<10}  {:>8}  {make:>9.3}  {touch:>9.3}  {obtained}",
        request.pages, request.populate
    );
}
