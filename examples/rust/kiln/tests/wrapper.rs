// The wrapper over the installed kiln, without a GPU. KILN_CACHE_DIR names a cache of the test's own.

use std::ffi::CString;
use std::ptr;

use kiln::{sys, Code, Device, Dtype, Service};

#[test]
fn an_error_has_the_whole_message() {
    let service = Service::new().unwrap();
    let error = service.open("no_such_template", Device::None(None)).err().unwrap();
    assert_eq!(error.code(), Code::UnknownTemplate);
    for text in [error.to_string(), format!("{error:?}")] {
        assert!(text.contains("no_such_template"), "{text}");
        assert!(text.contains("there are: ") && text.contains("rms_norm"), "{text}");
    }
    let rms_norm = service.open("rms_norm", Device::None(Some("sm_90a"))).unwrap();
    let error = rms_norm.compile(&["f64".into(), 4096.into()]).err().unwrap();
    assert_eq!(error.code(), Code::InvalidValue);
    assert!(error.to_string().contains("f64"), "{error}");
    let error = rms_norm.compile_named(&[("N", 4096.into())]).err().unwrap();
    assert_eq!(error.code(), Code::UnknownParameter);
}

#[test]
fn an_error_of_the_compiler_has_its_log() {
    let manifest = "format = 1\n[template]\nname = \"broken\"\ninstantiate = \"broken\"\n\
                    summary = \"does not compile\"\n[launch]\ngrid = [\"1\"]\nblock = [\"32\"]\n";
    let source = "__global__ void broken() { undeclared = 1; }";
    let [manifest, source] = [manifest, source].map(|text| CString::new(text).unwrap());
    let service = Service::new().unwrap();
    // SAFETY: the service is alive, both texts live until the call returns, and null stands for no reference.
    let status = unsafe {
        sys::kiln_service_add_template(service.as_ptr(), manifest.as_ptr(), source.as_ptr(), ptr::null())
    };
    assert_eq!(status, sys::KILN_OK as sys::kiln_status);
    let broken = service.open("broken", Device::None(Some("sm_90a"))).unwrap();
    let error = broken.compile(&[]).err().unwrap();
    assert_eq!(error.code(), Code::CompileFailed, "{error}");
    assert!(error.log().contains("undeclared"), "{error}");
    assert!(
        error.to_string().contains(error.message()) && error.to_string().contains(error.log().trim_end())
    );
    assert!(error.specialization().starts_with("broken"));
    assert!(error.options().contains("sm_90a"));
}

#[test]
fn a_text_with_a_zero_byte_is_refused() {
    let service = Service::new().unwrap();
    let error = service.open("rms\0norm", Device::None(None)).err().unwrap();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("zero byte"), "{error}");
}

#[test]
fn a_template_without_a_device_only_compiles() {
    let service = Service::new().unwrap();
    let rms_norm = service.open("rms_norm", Device::None(Some("sm_90a"))).unwrap();
    let error = rms_norm.get(&[Dtype::BF16.into(), 4096.into()]).err().unwrap();
    assert_eq!(error.code(), Code::NoDriver, "{error}");
}

#[test]
fn threads_share_a_template_and_an_image_outlives_its_service() {
    let service = Service::new().unwrap();
    let rms_norm = service.open("rms_norm", Device::None(Some("sm_90a"))).unwrap();
    let (by_order, by_name) = std::thread::scope(|scope| {
        let by_order = scope.spawn(|| rms_norm.compile(&[Dtype::BF16.into(), 4096.into()]).unwrap());
        let by_name =
            scope.spawn(|| rms_norm.compile_named(&[("H", 4096.into()), ("T", Dtype::BF16.into())]).unwrap());
        (by_order.join().unwrap(), by_name.join().unwrap())
    });
    drop(service);
    assert_eq!(by_order.key(), by_name.key());
    assert_eq!(by_order.bytes(), by_name.bytes());
    assert_eq!(&by_order.bytes()[..4], b"\x7fELF");
}
