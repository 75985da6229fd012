# cpack runs this when the files of all packages lie in folders of CPACK_TEMPORARY_INSTALL_DIRECTORY, one for each
# component. It adds the copyright and the changelogs, and compresses what Debian wants compressed.
cmake_policy(VERSION 3.25)

# `gzip -9n` puts neither a name nor a time into the file.
function(compress)
  execute_process(COMMAND gzip -9nf ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# The date of the build, or the one that SOURCE_DATE_EPOCH names.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(READ ${CPACK_KILN_DEBIAN}/copyright copyright)
foreach(library ${CPACK_KILN_LINKED})
  if(EXISTS /usr/share/doc/${library}/copyright)
    file(READ /usr/share/doc/${library}/copyright text)
    string(APPEND copyright "\n\n---- ${library}, which is linked in ----\n\n${text}")
  endif()
endforeach()

foreach(component RUNTIME DEVELOPMENT COMMAND)
  set(package ${CPACK_DEBIAN_${component}_PACKAGE_NAME})
  string(TOLOWER ${component} folder)
  set(usr ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${folder}/usr)
  set(doc ${usr}/share/doc/${package})
  file(WRITE ${doc}/copyright "${copyright}")
  file(WRITE ${doc}/changelog.Debian "kiln (${CPACK_KILN_VERSION}) unstable; urgency=medium

  * This release of kiln. The file changelog.gz says what is new.

 -- ${CPACK_DEBIAN_PACKAGE_MAINTAINER}  ${date}
")
  configure_file(${CPACK_KILN_CHANGELOG} ${doc}/changelog COPYONLY)
  compress(${doc}/changelog.Debian ${doc}/changelog)
  file(GLOB pages ${usr}/share/man/man1/*.1)
  if(pages)
    compress(${pages})
  endif()
endforeach()
# Debian's zsh does not search site-functions.
set(zsh ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/command/usr/share/zsh)
file(RENAME ${zsh}/site-functions ${zsh}/vendor-completions)
file(GLOB_RECURSE archives ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/development/usr/lib/*.a)
foreach(archive ${archives})
  execute_process(COMMAND strip --strip-debug --enable-deterministic-archives ${archive} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
