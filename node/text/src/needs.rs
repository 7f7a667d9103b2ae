//! What keeps sites out of a request, in words for its user and for owners, who read which key opens it.
//!
//! Invariant: each text goes behind "3 hosts: " and is the same for all of them.

use std::collections::BTreeSet;

use broker::{
    features::Feature,
    needs::{ImageName, Lack, Need},
};

/// That an owner does not allow it, where the grid has these images.
pub fn lack_text(lack: &Lack, images: &BTreeSet<ImageName>) -> String {
    let names = images.iter().map(ImageName::as_str).collect::<Vec<_>>().join(", ");
    let (what, key) = match lack {
        Lack::Need(Need::Run) => ("lets no commands run".to_owned(), "runner = \"bubblewrap\""),
        Lack::Need(Need::Network) => ("gives commands no network".to_owned(), "runner_network = true"),
        Lack::WithoutImage if names.is_empty() => {
            return "their owner runs commands in containers only: choose an image by --image".to_owned();
        }
        Lack::WithoutImage => {
            return format!(
                "their owner runs commands in containers only: choose an image by --image, such as {names}"
            );
        }
        Lack::Image(image) if images.is_empty() => (format!("has no image {image}"), "runner_images"),
        Lack::Image(image) => (format!("has no image {image}; there are {names}"), "runner_images"),
    };
    format!("their owner {what} ({key} in site.toml opens it, see docs/run.md)")
}

/// That a site has refused it and goes on claiming to have it.
pub fn refused_text(lack: &Lack) -> String {
    let what = match lack {
        Lack::Need(Need::Run) => "to run commands".to_owned(),
        Lack::Need(Need::Network) => "commands the network".to_owned(),
        Lack::WithoutImage => "commands without an image".to_owned(),
        Lack::Image(image) => format!("commands of the image {image}"),
    };
    format!("their site has refused {what} in the last ten minutes, though its advert says otherwise")
}

/// That the program of a site cannot do it.
pub fn feature_text(feature: &Feature) -> String {
    format!("their node is too old for it ({feature})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_names_no_image_or_a_wrong_one_reads_which_there_are() {
        let image = |name: &str| ImageName::try_from(name.to_owned()).unwrap();
        let (none, some) = (BTreeSet::new(), BTreeSet::from(["a:1", "b"].map(image)));
        let key = "(runner_images in site.toml opens it, see docs/run.md)";
        for (lack, images, expected) in [
            (
                Lack::WithoutImage,
                &some,
                "their owner runs commands in containers only: choose an image by --image, such as a:1, b".to_owned(),
            ),
            (Lack::Image(image("c")), &some, format!("their owner has no image c; there are a:1, b {key}")),
            (Lack::Image(image("c")), &none, format!("their owner has no image c {key}")),
        ] {
            assert_eq!(lack_text(&lack, images), expected);
        }
    }
}
