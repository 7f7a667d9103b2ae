//! A draw among some values, for all that seeds draw.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

/// One of `choices`, each as likely as the others.
pub fn one_of<T: Copy>(random: &mut Xoshiro256PlusPlus, choices: &[T]) -> T {
    choices[random.random_range(0..choices.len())]
}
