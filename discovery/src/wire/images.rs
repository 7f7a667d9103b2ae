//! The images of a site's containers, as an extra entry of its advert: to a reader that does not know it the site has none.
//!
//! Invariant: what is read is bounded as what is written.

use broker::features::{Features, Images};

use super::{
    encoding::{DecodeError, decode, encode},
    envelope::{EXTRA_VALUE_BYTES_MAX, Extra},
};

/// Its key.
const KEY: &str = "images";

/// The entry of these images; none where there are none, or they do not encode, and then nobody asks for them here.
pub fn entry(images: &Images) -> Option<(String, Vec<u8>)> {
    if images.is_empty() {
        return None;
    }
    let bytes = encode(images).ok().filter(|bytes| bytes.len() <= EXTRA_VALUE_BYTES_MAX)?;
    Some((KEY.to_owned(), bytes))
}

/// Gives the features of an advert the images that its extra entries name.
///
/// # Errors
/// [`DecodeError`] when the entry is malformed, or breaks a limit.
pub fn put_into(features: &mut Features, extra: &Extra) -> Result<(), DecodeError> {
    let Some(bytes) = extra.get(KEY) else { return Ok(()) };
    let images: Images = decode::<_, EXTRA_VALUE_BYTES_MAX>(bytes)?;
    if !images.is_bounded() {
        return Err(DecodeError::Malformed("images: too many".to_owned()));
    }
    features.set_images(images);
    Ok(())
}

#[cfg(test)]
mod tests {
    use broker::{features::IMAGES_MAX, needs::ImageName};

    use super::*;

    fn read(bytes: Vec<u8>) -> Result<Features, DecodeError> {
        let mut features = Features::own();
        put_into(&mut features, &Extra::from([(KEY.to_owned(), bytes)])).map(|()| features)
    }

    #[test]
    fn images_come_over_by_name_or_number_and_too_many_do_not() {
        let name = |number: usize| ImageName::try_from(format!("registry.example.org/image-{number}:1")).unwrap();
        assert_eq!(entry(&Images::default()), None);
        assert!(put_into(&mut Features::own(), &Extra::new()).is_ok());
        for count in [1, IMAGES_MAX] {
            let images = Images::of((0..count).map(name).collect());
            let (_, bytes) = entry(&images).unwrap();
            assert_eq!(read(bytes).unwrap().images(), &images);
        }
        for many in [Images::Numbered((0..=IMAGES_MAX as u64).collect()), Images::Named((0..200).map(name).collect())] {
            assert!(read(encode(&many).unwrap()).is_err(), "{} images", many.len());
        }
        assert!(read(vec![255; 9]).is_err());
    }
}
