//! The bytes of a seed never change. If a test here fails, the change has invalidated every recorded benchmark and answer.

use weir_generator::{FRAME_MAX, Generator, Profile, Sizes};

#[test]
fn first_packets_of_a_seed_are_as_ever() {
    let golden = [
        (Sizes::Mwn, 0x7ae2_b32e_3dda_21ba),
        (Sizes::Uniform, 0x351d_e676_2eaa_e421),
        (Sizes::Fixed(60), 0x42fb_cc2c_bea1_75e2),
    ];
    for (sizes, hash) in golden {
        let profile = Profile {
            seed: 42,
            packets: 10_000,
            sizes,
            ..Profile::default()
        };
        let made = digest(&profile);
        assert_eq!(made, hash, "{sizes}: made {made:#018x}");
    }
}

#[test]
fn same_profile_makes_the_same_bytes_and_another_seed_others() {
    let profile = Profile {
        packets: 5000,
        flows: 100,
        ..Profile::default()
    };
    assert_eq!(digest(&profile), digest(&profile));
    assert_ne!(
        digest(&profile),
        digest(&Profile {
            seed: 2,
            ..profile.clone()
        })
    );
}

#[test]
fn buffer_contents_do_not_show_in_frames() {
    let profile = Profile {
        packets: 20_000,
        flows: 200,
        ..Profile::default()
    };
    let (mut a, mut b) = (
        Generator::new(&profile).unwrap(),
        Generator::new(&profile).unwrap(),
    );
    loop {
        let (mut low, mut high) = ([0x00; FRAME_MAX], [0xff; FRAME_MAX]);
        let (made, same) = (a.next(&mut low), b.next(&mut high));
        assert_eq!(made, same);
        let Some(made) = made else { break };
        assert_eq!(low[..made.len], high[..made.len]);
    }
}

/// FNV-1a, 64 bits, over time, length and bytes of all packets.
fn digest(profile: &Profile) -> u64 {
    let mut generator = Generator::new(profile).unwrap();
    let mut buf = [0; FRAME_MAX];
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut eat = |bytes: &[u8]| {
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    while let Some(made) = generator.next(&mut buf) {
        eat(&made.time_ns.to_be_bytes());
        eat(&(made.len as u64).to_be_bytes());
        eat(&buf[..made.len]);
    }
    hash
}
