//! A list that only grows, whose copies share their elements.

use core::fmt;
use core::ops::Index;
use std::sync::{Arc, OnceLock};

/// A list that only grows. Copies share one array, of which each copy sees its own first part. A clone therefore costs one
/// atomic update, and a push onto a clone does not copy the elements before it.
///
/// **Cost**: an index costs an index into a slice, and a load that checks that the element is there. A push is amortised
/// constant. If another copy has already filled the next place in the array, the first push copies the elements.
#[derive(Clone)]
pub struct List<T> {
    items: Arc<[OnceLock<T>]>,
    len: usize,
}

impl<T> List<T> {
    /// Number of elements that this copy sees.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the list has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The element at `index`; `None` past the end.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        if index < self.len {
            self.items[index].get()
        } else {
            None
        }
    }

    /// The first element.
    pub fn first(&self) -> Option<&T> {
        self.get(0)
    }

    /// All elements, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.iter_from(0)
    }

    /// The elements from `index` on, in order.
    pub fn iter_from(&self, index: usize) -> impl Iterator<Item = &T> {
        self.items[index.min(self.len)..self.len]
            .iter()
            .filter_map(OnceLock::get)
    }
}

impl<T: Clone> List<T> {
    /// Appends an element to this copy alone.
    pub fn push(&mut self, item: T) {
        /// Places in the first array.
        const FIRST: usize = 4;
        let mut item = Some(item);
        if let Some(place) = self.items.get(self.len) {
            // Another copy may have put its own element there.
            place.get_or_init(|| item.take().expect("nothing took it before"));
        }
        if let Some(item) = item {
            let room = (self.len * 2).max(FIRST);
            let mut items: Vec<OnceLock<T>> = self.iter().cloned().map(OnceLock::from).collect();
            items.push(OnceLock::from(item));
            items.resize_with(room, OnceLock::new);
            self.items = items.into();
        }
        self.len += 1;
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self {
            items: Arc::default(),
            len: 0,
        }
    }
}

impl<T> Index<usize> for List<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        self.get(index).expect("the index is below the length")
    }
}

impl<T: Clone> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut list = Self::default();
        items.into_iter().for_each(|item| list.push(item));
        list
    }
}

impl<T: PartialEq> PartialEq for List<T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Eq> Eq for List<T> {}

impl<T: PartialEq, const N: usize> PartialEq<[T; N]> for List<T> {
    fn eq(&self, other: &[T; N]) -> bool {
        self.iter().eq(other)
    }
}

impl<T: fmt::Debug> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::List;
    use std::sync::Arc;

    #[test]
    fn copies_share_what_they_have_in_common_and_nothing_else() {
        let mut list: List<Arc<u32>> = (0..100).map(Arc::new).collect();
        let before = list.clone();
        let mut other = list.clone();
        list.push(Arc::new(100));
        other.push(Arc::new(7));
        assert_eq!((before.len(), before.get(100)), (100, None));
        assert_eq!((*list[100], *other[100]), (100, 7));
        assert!(Arc::ptr_eq(&list[3], &before[3]) && Arc::ptr_eq(&other[3], &before[3]));
        assert!(list.iter().map(|item| **item).eq(0..=100));
        assert!(other.iter().take(100).eq(before.iter()));
    }

    /// If a list of n elements is copied before each push, elements are copied only when its array grows.
    #[test]
    fn a_push_onto_a_copy_copies_few_elements() {
        #[derive(Debug)]
        struct Counted(Arc<std::sync::atomic::AtomicUsize>);
        impl Clone for Counted {
            fn clone(&self) -> Self {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                Self(Arc::clone(&self.0))
            }
        }
        let copies = Arc::default();
        let mut list = List::default();
        let mut held = Vec::new();
        for _ in 0..5000 {
            let mut next: List<Counted> = list.clone();
            next.push(Counted(Arc::clone(&copies)));
            held.push(core::mem::replace(&mut list, next));
        }
        assert_eq!(list.len(), 5000);
        assert!(copies.load(std::sync::atomic::Ordering::Relaxed) < 2 * 5000 * 2);
    }
}
