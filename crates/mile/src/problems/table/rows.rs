//! One pass over the rows of a table, in blocks: a row is read from memory once, for its product with x, and is still
//! in the cache when it is added to the gradient.
//!
//! Products are formed row by row, in memory order, which the CPU then prefetches: with four rows side by side,
//! 48 MB of short rows were read at two thirds of that speed. Rows are added four at a time, because the gradient has to
//! be read and written each time.
//!
//! The sums are the same on every CPU: those of a product are formed as the lanes form them, and rows are added in order.

use num_traits::Zero;

use super::products::{MOST_ROWS, Products, SIDE_BY_SIDE, with_products};
use super::{Loss, Shard, softmax};
use crate::isa::Isa;
use crate::lanes::{Kernel, LoadLanes};
use crate::real::Real;

/// Bytes of a block's rows: half of the cache nearest to the core.
const BLOCK_BYTES: usize = 16 << 10;
/// Rows, or classes, that are processed side by side.
const ABREAST: usize = 4;
/// Vectors of a long row in one turn of the loop that multiplies it: its speed then does not depend on where the linker puts the loop.
const UNROLLED: usize = 4;

/// Rows of numbers, with a target for each, and perhaps a weight and an offset.
#[derive(Clone, Copy)]
pub(super) struct Samples<'a, T> {
    dim: usize,
    features: &'a [T],
    targets: &'a [T],
    weights: &'a [T],
    offsets: &'a [T],
}

impl<'a, T: Real> Samples<'a, T> {
    /// # Panics
    /// If there are not `dim` features for each target.
    pub(super) fn new(dim: usize, shard: &'a Shard<T>) -> Self {
        let Shard { features, targets, weights, offsets } = shard;
        assert_eq!(Some(features.len()), targets.len().checked_mul(dim), "a row of features for each target");
        Self { dim, features, targets, weights, offsets }
    }

    /// The same rows and weights with other targets, and without offsets.
    ///
    /// # Panics
    /// If there are fewer targets than rows.
    pub(super) fn with_targets(self, targets: &'a [T]) -> Self {
        Self { targets: &targets[..self.targets.len()], offsets: &[], ..self }
    }

    /// The weight of a row.
    pub(super) fn weight(&self, row: usize) -> f64 {
        self.weights.get(row).map_or(1.0, |weight| weight.wide())
    }

    /// The offset of a row.
    pub(super) fn offset(&self, row: usize) -> f64 {
        self.offsets.get(row).map_or(0.0, |offset| offset.wide())
    }

    pub(super) fn dim(&self) -> usize {
        self.dim
    }

    pub(super) fn len(&self) -> usize {
        self.targets.len()
    }

    /// All features, row after row, and all targets.
    pub(super) fn all(&self) -> (&'a [T], &'a [T]) {
        (self.features, self.targets)
    }

    /// A row of `dim` numbers, and its target.
    #[inline(always)]
    fn row(&self, row: usize) -> (*const T, T) {
        let target = self.targets[row];
        // SAFETY: there is a row of features for each target (`new`).
        (unsafe { self.features.as_ptr().add(row * self.dim) }, target)
    }

    /// Adds the offsets of a block's rows to their products.
    #[inline(always)]
    fn shift<S: Real>(&self, block: &Block<T>, products: &mut [Products<S>]) {
        if !self.offsets.is_empty() {
            let products = products[0].iter_mut().zip(block.numbers());
            products.for_each(|(p, row)| *p += S::of(self.offset(*row)));
        }
    }

    /// Multiplies values of a block's rows by their weights.
    #[inline(always)]
    fn weigh<S: Real>(&self, block: &Block<T>, values: &mut [Products<S>]) {
        if !self.weights.is_empty() {
            for values in values {
                let values = values.iter_mut().zip(block.numbers());
                values.for_each(|(value, row)| *value *= S::of(self.weight(*row)));
            }
        }
    }

    /// Adds `scale` times the gradient of the weighted losses of `rows` at x to `gradient`.
    pub(super) fn add_gradient<R: Iterator<Item = usize>>(
        self,
        isa: Isa,
        loss: Loss,
        rows: R,
        scale: T,
        x: &[T],
        gradient: &mut [T],
    ) {
        let numbers = self.dim * loss.classes();
        assert!(x.len() == numbers && gradient.len() == numbers, "a number for each column and class");
        with_products(loss.classes(), |products| {
            T::run_on(isa, AddGradient { samples: self, loss, rows, scale, x, products, gradient });
        });
    }

    /// The weighted sum of the losses of all rows at x.
    pub(super) fn loss(self, isa: Isa, loss: Loss, x: &[T]) -> f64 {
        assert_eq!(x.len(), self.dim * loss.classes(), "a number for each column and class");
        with_products(loss.classes(), |products| {
            T::run_on(isa, SumLosses { samples: self, loss, x, products })
        })
    }

    /// The product of each row with x, with its offset, or, for several classes, the first class with the largest product; NaN if a product is.
    pub(super) fn predictions(self, isa: Isa, loss: Loss, x: &[T]) -> Vec<f64> {
        assert_eq!(x.len(), self.dim * loss.classes(), "a number for each column and class");
        with_products(loss.classes(), |products| T::run_on(isa, Predict { samples: self, x, products }))
    }
}

/// Rows that are processed together, with their targets.
struct Block<T> {
    rows: [*const T; MOST_ROWS],
    targets: [T; MOST_ROWS],
    numbers: [usize; MOST_ROWS],
    count: usize,
}

impl<T: Real> Block<T> {
    #[inline(always)]
    fn new() -> Self {
        Self {
            rows: [std::ptr::null(); MOST_ROWS],
            targets: [T::zero(); MOST_ROWS],
            numbers: [0; MOST_ROWS],
            count: 0,
        }
    }

    /// The numbers of its rows.
    #[inline(always)]
    fn numbers(&self) -> &[usize] {
        &self.numbers[..self.count]
    }

    /// Takes the next rows; false if there are none.
    #[inline(always)]
    fn fill(&mut self, samples: &Samples<T>, rows: &mut impl Iterator<Item = usize>) -> bool {
        let most = (BLOCK_BYTES / (samples.dim * size_of::<T>()).max(1)).clamp(ABREAST, MOST_ROWS);
        self.count = 0;
        for row in rows.take(most) {
            (self.rows[self.count], self.targets[self.count]) = samples.row(row);
            self.numbers[self.count] = row;
            self.count += 1;
        }
        self.count > 0
    }

    /// Forms the products of the rows with the coefficients x of each class; returns the rows, and their targets in whole vectors. What is
    /// computed with those beyond the last row is not used.
    ///
    /// # Safety
    ///
    /// Every row has `dim` numbers, and the machine has the instruction set of `V`.
    #[inline(always)]
    unsafe fn multiply<V: LoadLanes<T>>(
        &self,
        dim: usize,
        x: &[T],
        products: &mut [Products<V::T>],
    ) -> (&[*const T], &[T]) {
        let (rows, targets) =
            (&self.rows[..self.count], &self.targets[..self.count.next_multiple_of(SIDE_BY_SIDE)]);
        if let [products] = products {
            for (row, product) in rows.iter().zip(products) {
                // SAFETY: promised by the caller.
                [*product] = unsafe { dots::<1, UNROLLED, T, T, V>(*row, x) };
            }
            return (rows, targets);
        }
        for (k, products) in products.chunks_mut(ABREAST).enumerate() {
            let x = &x[k * ABREAST * dim..][..products.len() * dim];
            // SAFETY: promised by the caller.
            unsafe {
                match products.len() {
                    1 => multiply::<1, T, V>(rows, x, products),
                    2 => multiply::<2, T, V>(rows, x, products),
                    3 => multiply::<3, T, V>(rows, x, products),
                    _ => multiply::<ABREAST, T, V>(rows, x, products),
                }
            }
        }
        (rows, targets)
    }
}

/// Forms the products of rows with C vectors, which lie one after the other in x.
///
/// # Safety
///
/// As for [`dots`].
#[inline(always)]
unsafe fn multiply<const C: usize, T, V: LoadLanes<T>>(
    rows: &[*const T],
    x: &[T],
    products: &mut [Products<V::T>],
) {
    let Some((products, _)) = products.split_first_chunk_mut::<C>() else { return };
    for (j, row) in rows.iter().enumerate().take(MOST_ROWS) {
        // SAFETY: promised by the caller.
        let found = unsafe { dots::<C, UNROLLED, T, T, V>(*row, x) };
        for c in 0..C {
            products[c][j] = found[c];
        }
    }
}

struct AddGradient<'a, T, R> {
    samples: Samples<'a, T>,
    loss: Loss,
    rows: R,
    scale: T,
    x: &'a [T],
    products: &'a mut [Products<T>],
    gradient: &'a mut [T],
}

impl<T: Real, R: Iterator<Item = usize>> Kernel<T> for AddGradient<'_, T, R> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: LoadLanes<T, T = T>, W: LoadLanes<T, T = f64> + LoadLanes<f64>>(self) {
        let Self { samples, loss, mut rows, scale, x, products, gradient } = self;
        let (dim, mut block) = (samples.dim, Block::new());
        while block.fill(&samples, &mut rows) {
            // SAFETY: x and the gradient have `dim` numbers for each class (`add_gradient`), and so has every row of a
            // block (`row`); the caller vouches for the instructions.
            unsafe {
                let (rows, targets) = block.multiply::<V>(dim, x, products);
                samples.shift(&block, products);
                loss.slopes(scale, products, targets);
                samples.weigh(&block, products);
                let (four, one) = rows.as_chunks::<ABREAST>();
                for (class, slopes) in products.iter().enumerate() {
                    let mut sums = Sums::<T, V>::new(&mut gradient[class * dim..(class + 1) * dim]);
                    let (slopes, last) = slopes[..rows.len()].as_chunks::<ABREAST>();
                    for (rows, slopes) in four.iter().zip(slopes) {
                        sums.add(*rows, *slopes);
                    }
                    for (row, slope) in one.iter().zip(last) {
                        sums.add([*row], [*slope]);
                    }
                    sums.finish();
                }
            }
        }
    }
}

struct SumLosses<'a, T> {
    samples: Samples<'a, T>,
    loss: Loss,
    x: &'a [T],
    products: &'a mut [Products<f64>],
}

impl<T: Real> Kernel<T> for SumLosses<'_, T> {
    type Output = f64;

    #[inline(always)]
    unsafe fn run<V: LoadLanes<T, T = T>, W: LoadLanes<T, T = f64> + LoadLanes<f64>>(self) -> f64 {
        let Self { samples, loss, x, products } = self;
        let (mut rows, mut block, mut sum) = (0..samples.len(), Block::new(), 0.0);
        while block.fill(&samples, &mut rows) {
            // SAFETY: x has `dim` numbers for each class (`loss`), and so has every row of a block (`row`); the caller
            // vouches for the instructions.
            let (rows, targets) = unsafe { block.multiply::<W>(samples.dim, x, products) };
            samples.shift(&block, products);
            loss.values(products, targets);
            samples.weigh(&block, &mut products[..1]);
            sum = products[0][..rows.len()].iter().fold(sum, |sum, loss| sum + loss);
        }
        sum
    }
}

struct Predict<'a, T> {
    samples: Samples<'a, T>,
    x: &'a [T],
    products: &'a mut [Products<f64>],
}

impl<T: Real> Kernel<T> for Predict<'_, T> {
    type Output = Vec<f64>;

    #[inline(always)]
    unsafe fn run<V: LoadLanes<T, T = T>, W: LoadLanes<T, T = f64> + LoadLanes<f64>>(self) -> Vec<f64> {
        let Self { samples, x, products } = self;
        let (mut rows, mut block) = (0..samples.len(), Block::new());
        let mut all = Vec::with_capacity(samples.len());
        while block.fill(&samples, &mut rows) {
            // SAFETY: x has `dim` numbers for each class (`predictions`), and so has every row of a block (`row`); the
            // caller vouches for the instructions.
            let (rows, _) = unsafe { block.multiply::<W>(samples.dim, x, products) };
            samples.shift(&block, products);
            let predicted = if products.len() == 1 { products[0] } else { softmax::classes(products) };
            all.extend_from_slice(&predicted[..rows.len()]);
        }
        all
    }
}

/// Writes `finish(i, a_i'x)` for each row of a matrix, in `f64`.
pub(super) fn products<T: Real>(
    isa: Isa,
    matrix: &[f64],
    x: &[T],
    finish: impl Fn(usize, f64) -> f64,
    out: &mut [T],
) {
    struct Products<'a, T, F>(&'a [f64], &'a [T], F, &'a mut [T]);
    impl<T: Real, F: Fn(usize, f64) -> f64> Products<'_, T, F> {
        /// # Safety
        ///
        /// The matrix has a row of as many numbers as x for each product, and the machine has the instruction set of `W`.
        #[inline(always)]
        unsafe fn by<const U: usize, W: LoadLanes<T, T = f64> + LoadLanes<f64>>(self) {
            let Self(matrix, x, finish, out) = self;
            for (i, out) in out.iter_mut().enumerate() {
                // SAFETY: promised by the caller.
                let [product] = unsafe { dots::<1, U, f64, T, W>(matrix.as_ptr().add(i * x.len()), x) };
                *out = T::of(finish(i, product));
            }
        }
    }
    impl<T: Real, F: Fn(usize, f64) -> f64> Kernel<T> for Products<'_, T, F> {
        type Output = ();

        #[inline(always)]
        unsafe fn run<V: LoadLanes<T, T = T>, W: LoadLanes<T, T = f64> + LoadLanes<f64>>(self) {
            // Chosen once, because the rows of normal equations are short, and would notice a test in each.
            // SAFETY: the size of the matrix is checked before; the caller vouches for the instructions.
            unsafe {
                match self.1.len() < UNROLLED * W::COUNT {
                    true => self.by::<1, W>(),
                    false => self.by::<UNROLLED, W>(),
                }
            }
        }
    }
    assert_eq!(Some(matrix.len()), out.len().checked_mul(x.len()), "a row for each product");
    T::run_on(isa, Products(matrix, x, finish, out));
}

/// The products of a row with C vectors, which lie one after the other in x, by a loop that first takes U vectors of a row in a turn. The sums
/// are the same whatever U.
///
/// # Safety
///
/// The row has as many numbers as each of the vectors, and the machine has the instruction set of `V`.
#[inline(always)]
unsafe fn dots<const C: usize, const U: usize, A, T, V: LoadLanes<A> + LoadLanes<T>>(
    row: *const A,
    x: &[T],
) -> [V::T; C] {
    let (dim, x) = (x.len() / C, x.as_ptr());
    // SAFETY: columns are below `dim`, the length of the row and of each vector.
    unsafe {
        let (mut sums, mut k) = ([V::splat(V::T::zero()); C], 0);
        while U > 1 && k + U * V::COUNT <= dim {
            for _ in 0..U {
                add_products::<C, A, T, V>(&mut sums, row.add(k), x.add(k), dim);
                k += V::COUNT;
            }
        }
        while k + V::COUNT <= dim {
            add_products::<C, A, T, V>(&mut sums, row.add(k), x.add(k), dim);
            k += V::COUNT;
        }
        if k < dim {
            let row = <V as LoadLanes<A>>::load_first(row.add(k), dim - k);
            for (c, sum) in sums.iter_mut().enumerate() {
                let x = <V as LoadLanes<T>>::load_first(x.add(c * dim + k), dim - k);
                *sum = sum.add(row.mul(x));
            }
        }
        let mut found = [V::T::zero(); C];
        for c in 0..C {
            found[c] = sums[c].sum();
        }
        found
    }
}

/// Adds the products of a vector of a row with those of C vectors, which are `dim` numbers apart.
///
/// # Safety
///
/// There is a whole vector of numbers in each place, and the machine has the instruction set of `V`.
#[inline(always)]
unsafe fn add_products<const C: usize, A, T, V: LoadLanes<A> + LoadLanes<T>>(
    sums: &mut [V; C],
    row: *const A,
    x: *const T,
    dim: usize,
) {
    // SAFETY: promised by the caller.
    unsafe {
        let row = <V as LoadLanes<A>>::load(row);
        for (c, sum) in sums.iter_mut().enumerate() {
            *sum = sum.add(row.mul(<V as LoadLanes<T>>::load(x.add(c * dim))));
        }
    }
}

/// A gradient to which rows are added. The remainder beyond whole vectors is kept in a register: a masked load
/// has to wait until an earlier masked store to the same place is done.
struct Sums<'a, T, V> {
    gradient: &'a mut [T],
    /// Columns in whole vectors.
    whole: usize,
    rest: V,
}

impl<'a, T: Real, V: LoadLanes<T, T = T>> Sums<'a, T, V> {
    /// # Safety
    ///
    /// The machine has the instruction set of `V`.
    #[inline(always)]
    unsafe fn new(gradient: &'a mut [T]) -> Self {
        let whole = gradient.len() - gradient.len() % V::COUNT;
        // SAFETY: the numbers from `whole` on are those that are left.
        unsafe {
            let rest = match gradient.len() - whole {
                0 => V::splat(T::zero()),
                n => V::load_first(gradient.as_ptr().add(whole), n),
            };
            Self { gradient, whole, rest }
        }
    }

    /// Writes what was kept in the register.
    ///
    /// # Safety
    ///
    /// The machine has the instruction set of `V`.
    #[inline(always)]
    unsafe fn finish(self) {
        let left = self.gradient.len() - self.whole;
        if left > 0 {
            // SAFETY: the numbers from `whole` on are those that are left.
            unsafe { self.rest.store_first(self.gradient.as_mut_ptr().add(self.whole), left) };
        }
    }

    /// `g <- g + sum_r s_r a_r`, in the order of the rows.
    ///
    /// # Safety
    ///
    /// Every row has as many numbers as the gradient, and the machine has the instruction set of `V`.
    #[inline(always)]
    unsafe fn add<const R: usize>(&mut self, rows: [*const T; R], slopes: [T; R]) {
        let (g, left) = (self.gradient.as_mut_ptr(), self.gradient.len() - self.whole);
        // SAFETY: columns are within each row and g, which have the same length.
        unsafe {
            // A loop, not `map`: a closure is not compiled for these instructions, so they would not be inlined.
            let mut factors = [V::splat(T::zero()); R];
            for r in 0..R {
                factors[r] = V::splat(slopes[r]);
            }
            let mut k = 0;
            while k < self.whole {
                let mut sum = V::load(g.add(k));
                for r in 0..R {
                    sum = sum.add(factors[r].mul(V::load(rows[r].add(k))));
                }
                sum.store(g.add(k));
                k += V::COUNT;
            }
            if left > 0 {
                for r in 0..R {
                    self.rest = self.rest.add(factors[r].mul(V::load_first(rows[r].add(k), left)));
                }
            }
        }
    }
}
