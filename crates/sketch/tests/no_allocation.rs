//! Updates do not allocate: the allocator counts its calls.

mod support;

use weir_memory::Request;
use weir_sketch::{
    Cms, Distinct, Exact, Heavy, Item, MajorityVote, Pair, Reversible, ReversibleShape, Rule,
    Shape, SharedCms, SharedExact, SharedReversible, SharedSimpleTable, SimpleTable, Spreaders,
    Weigh,
};
use weir_testkit::allocations::{Counting, own_allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn updates_allocate_nothing() {
    let request = &Request::default();
    let item = |key: u32| Item {
        hash: support::random(1, u64::from(key)),
        bytes: 100,
        key,
    };
    let items: Vec<_> = support::zipf(1, 20_000, 9000, 1.0)
        .into_iter()
        .map(item)
        .collect();
    let hashes: Vec<_> = items.iter().map(|item| item.hash).collect();
    let shape = Shape::new(4, 512).unwrap();
    let mut exact = Exact::new(1 << 16, 1, request).unwrap();
    let shared_exact = SharedExact::new(1 << 16, 1, request).unwrap();
    let mut heavy = Heavy::new(1 << 14, Weigh::Bytes, 1, request).unwrap();
    let mut cms = Cms::<u32>::new(shape, Rule::Conservative, 1, request).unwrap();
    let shared_cms = SharedCms::new(shape, Rule::Conservative, 1, request).unwrap();
    let mut simple = SimpleTable::new(1 << 14, 1, request).unwrap();
    let shared_simple = SharedSimpleTable::new(1 << 14, 1, request).unwrap();
    let mut votes = MajorityVote::new(1 << 14, Weigh::Bytes, 1, request).unwrap();
    let reversible = ReversibleShape::for_memory(4 << 20, 64, 8).unwrap();
    let shared_reversible = SharedReversible::new(reversible, 1, request).unwrap();
    let mut reversible = Reversible::<u64>::new(reversible, 1, request).unwrap();
    let mut distinct = Distinct::new(1, request).unwrap();
    let mut spreaders = Spreaders::new(1 << 14, 1, request).unwrap();
    let pair = |item: &Item<u32>| Pair {
        hash: item.hash,
        key: item.key % 50,
    };
    let pairs: Vec<_> = items.iter().map(pair).collect();

    let before = own_allocations();
    for (items, hashes) in items.chunks(100).zip(hashes.chunks(100)) {
        exact.update(items);
        shared_exact.update(items);
        heavy.update(items);
        cms.update(hashes);
        simple.update(items);
        shared_simple.update(items);
        votes.update(items);
        shared_cms.update(hashes);
        reversible.update(hashes);
        shared_reversible.update(hashes);
        items.iter().for_each(|item| distinct.see(item.hash));
    }
    pairs.chunks(100).for_each(|pairs| spreaders.update(pairs));
    let after = own_allocations();
    assert_eq!(after - before, 0);
    assert_eq!(
        exact.total().packets + heavy.total().packets + cms.total(),
        60_000
    );
}
